"""A2A face: agent card, AWCP extension, JSON-RPC routes, and the outgoing A2A client."""

import os

# The SDK wraps every call in spans as soon as the OpenTelemetry API is importable, at about 1 ms per request, and
# logs noise when a stream is dropped. It reads this variable once, on import; an operator's own value wins.
os.environ.setdefault("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false")
