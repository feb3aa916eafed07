"""What one task of a chat model may use: tokens, requests and money, counted as they are used. No I/O."""

from __future__ import annotations

from sublet.supervisor.chat.reply import TokenUsage
from sublet.supervisor.model_config import ModelConfig


class Budget:
    """Counts one task.

    Args:
        config: its bounds.
    """

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self.steps = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.estimated = False
        """Whether some of the tokens are our estimate, as the endpoint told none."""

    @property
    def tokens(self) -> int:
        """Tokens so far, in and out."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def cost(self) -> float | None:
        """What it has cost so far; None where no prices are known."""
        prices = self._config.prices
        if prices is None:
            return None
        spent = self.prompt_tokens * prices.input_per_million + self.completion_tokens * prices.output_per_million
        return spent / 1_000_000

    def spend(self, told: TokenUsage | None, estimate: TokenUsage) -> None:
        """Count one request: by what the endpoint has told, else by our estimate."""
        usage = told or estimate
        self.steps += 1
        self.estimated = self.estimated or told is None
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens

    def met(self) -> str | None:
        """Return which bound leaves no room for a further request, as the end of a sentence about the agent."""
        config = self._config
        about = "about " if self.estimated else ""
        if self.tokens >= config.max_tokens:
            return f"used {about}{self.tokens:,} tokens, and {config.max_tokens:,} (max_tokens) are its bound"
        if self.steps >= config.max_steps:
            return f"asked its model {self.steps:,} times, and that is its bound (max_steps)"
        if config.max_cost is not None and self.cost is not None and self.cost >= config.max_cost:
            return f"cost {about}{self.cost:.4g}, and {config.max_cost:.4g} (max_cost) is its bound"
        return None

    def told(self) -> str:
        """Return in one line what was used."""
        about = "about " if self.estimated else ""
        requests = f"{self.steps:,} request{'' if self.steps == 1 else 's'}"
        line = f"{requests}, {about}{self.tokens:,} tokens ({self.prompt_tokens:,} in, {self.completion_tokens:,} out)"
        return line if self.cost is None else f"{line}, cost {self.cost:.4g}"
