"""Well-known agents as commands: what each is started with, and what it needs of the machine (DESIGN 4.9).

All read the prompt on standard input and print their answer. Each starts with an empty home: the user's own settings,
hooks and MCP servers are no business of a delegator's task. Nor are the delegator's any business of this machine: a
directory can bring along settings whose hooks and servers would run here before the model has said a word, so every
preset leaves the project's settings unread. What a program needs to reach its model passes by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from sublet.protocol.canonical import JsonValue

_PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS")


@dataclass(frozen=True, slots=True)
class Preset:
    """One well-known agent.

    Args:
        argv: how it is started.
        confined: arguments added where the sandbox confines it. It then need not ask before it runs a command, which
            it could not do anyway: nobody is there to answer.
        unconfined: arguments added where nothing but the program itself holds it back.
        model_option: what precedes the name of a model; empty where there is no choice.
        needs_network: whether it is of any use without.
        environment: variables that pass from the daemon's environment if set.
        login_variables: those of them that make a login file needless.
        login_files: files below the home that hold a login, copied into the empty home where no such variable is set.
        settings: variables that are set where the daemon's environment does not pass them; placeholders as in ``argv``.
        install: the command that brings the program.
        log_in: what its owner does where there is no login yet.
        other_logins: variables that tell of a login of another kind.
        told_by: how what it prints is told while it works: as it stands, or as events of its own.
    """

    argv: tuple[str, ...]
    confined: tuple[str, ...] = ()
    unconfined: tuple[str, ...] = ()
    model_option: str = ""
    needs_network: bool = True
    environment: tuple[str, ...] = ()
    login_variables: tuple[str, ...] = ()
    login_files: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    install: str = ""
    log_in: str = ""
    other_logins: tuple[str, ...] = ()
    told_by: Literal["text", "claude-events", "codex-events", "gemini-events"] = "text"

    def command(self, *, confined: bool, model: str | None) -> tuple[str, ...]:
        """Return the whole argv."""
        chosen = (self.model_option, model) if model else ()
        return (*self.argv, *(self.confined if confined else self.unconfined), *chosen)

    def logins(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the login files that are needed, given the daemon's environment."""
        return () if any(environ.get(name) for name in self.login_variables) else self.login_files


PRESETS: Mapping[str, Preset] = {
    "shell": Preset(argv=("sh", "-s"), needs_network=False),
    "claude": Preset(
        argv=(
            # Events, one a line, so that it shows what it does while it does it; as text it only says the last word.
            *("claude", "-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "acceptEdits"),
            # Without these, hooks of .claude/settings.json and servers of .mcp.json run as soon as it starts.
            *("--strict-mcp-config", "--setting-sources", "user"),
        ),
        confined=("--allowedTools", "Bash,Edit,Write,NotebookEdit,Read,Glob,Grep"),
        model_option="--model",
        environment=(
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_MODEL",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_MAX_RETRIES",
            *_PROXY,
            *_CERTIFICATES,
        ),
        login_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        login_files=(".claude/.credentials.json",),
        settings=(
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("CLAUDE_CODE_MAX_RETRIES", "4"),  # by itself it tries for minutes to reach a model that is not there
            ("CLAUDE_CODE_TMPDIR", "{scratch}/tmp"),
            ("DISABLE_AUTOUPDATER", "1"),
        ),
        install="npm install -g @anthropic-ai/claude-code",
        log_in="Set ANTHROPIC_API_KEY in the daemon's environment, or log in once: claude",
        told_by="claude-events",
    ),
    "codex": Preset(
        # It reads a project's configuration only where its user has trusted that project, which an empty home has not;
        # rules, which say what may run unasked, it would read all the same.
        argv=("codex", "exec", "--skip-git-repo-check", "--ignore-rules", "--color", "never", "--json"),
        # Its own sandbox can't be set up inside ours, and would only repeat it.
        confined=("--sandbox", "danger-full-access"),
        unconfined=("--sandbox", "workspace-write"),
        model_option="--model",
        environment=("CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", *_PROXY, *_CERTIFICATES),
        login_variables=("CODEX_API_KEY", "OPENAI_API_KEY"),
        login_files=(".codex/auth.json",),
        install="npm install -g @openai/codex",
        log_in="Set OPENAI_API_KEY in the daemon's environment, or log in once: codex login",
        told_by="codex-events",
    ),
    "gemini": Preset(
        # It does not start unattended in a directory that is not trusted. The flag trusts it after the settings have
        # been looked for; the variable GEMINI_CLI_TRUST_WORKSPACE would do so before, and the project's would act.
        argv=("gemini", "--skip-trust", "--output-format", "stream-json"),
        confined=("--approval-mode", "yolo"),
        unconfined=("--approval-mode", "auto_edit"),
        model_option="--model",
        environment=(
            "GEMINI_API_KEY",
            "GEMINI_MODEL",
            "GOOGLE_API_KEY",
            "GOOGLE_CLOUD_LOCATION",
            "GOOGLE_CLOUD_PROJECT",
            "GOOGLE_GEMINI_BASE_URL",
            "GOOGLE_GENAI_USE_GCA",
            "GOOGLE_GENAI_USE_VERTEXAI",
            *_PROXY,
            *_CERTIFICATES,
        ),
        login_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        login_files=(".gemini/oauth_creds.json", ".gemini/google_accounts.json"),
        install="npm install -g @google/gemini-cli",
        log_in="Set GEMINI_API_KEY in the daemon's environment, or log in once: gemini",
        other_logins=("GOOGLE_GENAI_USE_GCA", "GOOGLE_GENAI_USE_VERTEXAI"),
        told_by="gemini-events",
    ),
}


@dataclass(frozen=True, slots=True)
class AcpPreset:
    """One well-known agent that speaks the Agent Client Protocol.

    Args:
        program: how it is started. It asks before it acts, so it is not told that it need not.
        asking_mode: the session mode in which it does, where it would begin in another.
        session_meta: what it is told beside the protocol's own fields when a session begins.
        login_methods: variables with a key, and the method by which the program is told to log in with that one.
        files: whether it may have us read and write files; without it uses its own tools, in the sandbox as well.
    """

    program: Preset
    asking_mode: str | None = None
    session_meta: Mapping[str, JsonValue] = field(default_factory=dict)
    login_methods: tuple[tuple[str, str], ...] = ()
    files: bool = True


_CLAUDE, _CODEX, _GEMINI = PRESETS["claude"], PRESETS["codex"], PRESETS["gemini"]

ACP_PRESETS: Mapping[str, AcpPreset] = {
    "claude": AcpPreset(
        replace(
            _CLAUDE,
            argv=("claude-agent-acp",),
            confined=(),
            model_option="",
            install="npm install -g @agentclientprotocol/claude-agent-acp",
            told_by="text",
        ),
        asking_mode="default",
        # Without it, hooks of a lent .claude/settings.json and servers of its .mcp.json would run here.
        session_meta={"claudeCode": {"options": {"settingSources": ["user"], "strictMcpConfig": True}}},
    ),
    "codex": AcpPreset(
        replace(
            _CODEX,
            # It asks before commands only where none is trusted, and its own sandbox can't be set up inside ours.
            argv=("codex-acp", "-c", 'approval_policy="untrusted"', "-c", 'sandbox_mode="danger-full-access"'),
            confined=(),
            unconfined=(),
            model_option="",
            install="npm install -g @zed-industries/codex-acp",
            told_by="text",
        ),
        login_methods=(("CODEX_API_KEY", "codex-api-key"), ("OPENAI_API_KEY", "openai-api-key")),
    ),
    "gemini": AcpPreset(
        replace(
            _GEMINI,
            argv=("gemini", "--experimental-acp", "--skip-trust"),
            confined=(),
            unconfined=(),
            told_by="text",
        ),
        asking_mode="default",
        login_methods=(("GEMINI_API_KEY", "gemini-api-key"),),
        # It takes our answer that a file is not there for a failure, and so never makes a new one by way of us.
        files=False,
    ),
    "opencode": AcpPreset(
        Preset(
            argv=("opencode", "acp"),
            environment=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_CONFIG_CONTENT", *_PROXY, *_CERTIFICATES),
            login_variables=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_CONFIG_CONTENT"),
            login_files=(".local/share/opencode/auth.json",),
            settings=(
                ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
                # By itself it asks nothing.
                ("OPENCODE_PERMISSION", '{"edit":"ask","bash":"ask","webfetch":"ask"}'),
            ),
            install="npm install -g opencode-ai",
            log_in="Set a provider's key in the daemon's environment, or log in once: opencode auth login",
        )
    ),
    "iflow": AcpPreset(
        Preset(
            argv=("iflow", "--experimental-acp"),
            model_option="--model",
            environment=("IFLOW_API_KEY", "IFLOW_BASE_URL", "IFLOW_MODEL_NAME", *_PROXY, *_CERTIFICATES),
            login_variables=("IFLOW_API_KEY",),
            login_files=(".iflow/oauth_creds.json", ".iflow/iflow_accounts.json"),
            install="npm install -g @iflow-ai/iflow-cli",
            log_in="Set IFLOW_API_KEY in the daemon's environment, or log in once: iflow",
        )
    ),
}
"""By the name that ``agent.json`` gives them."""
