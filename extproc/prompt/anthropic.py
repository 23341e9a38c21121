"""Messages (Anthropic). Systems and texts give the bytes of the chat request that equals them."""

from extproc.prompt.chat import write_messages, write_opening
from extproc.prompt.content import Content
from extproc.prompt.model import Api
from extproc.prompt.parsing import Fields


def read(fields: Fields, out: Content) -> Api | None:
    """Write a messages request: tools, the system prompt as first message, the messages."""
    head = {
        "chat_template_kwargs": fields.whole("chat_template_kwargs"),
        "reasoning_effort": _effort(fields),
    }
    system = fields.leading("system", "messages")
    write_opening(
        out,
        fields,
        head,
        {"role": "system", "content": system} if system else None,
        before="messages",
        cut=fields.is_cut("system"),
    )
    write_messages(out, fields.get("messages"), cut=fields.is_cut("messages"))
    return Api.MESSAGES


def _effort(fields: Fields) -> object:
    # A thinking budget limits the output alone; switching thinking off changes the template.
    thinking = fields.whole("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "disabled":
        return "none"
    config = fields.whole("output_config")
    return config.get("effort") if isinstance(config, dict) else None
