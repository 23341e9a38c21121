"""Example request bodies and the paths to which clients send them."""

from pathlib import Path
from typing import Final

PATHS: Final = {
    "001_chat_minimal.json": "/v1/chat/completions",
    "002_chat_minimal_compact.json": "/v1/chat/completions",
    "003_chat_key_order_messages_first.json": "/v1/chat/completions",
    "004_chat_multi_turn.json": "/v1/chat/completions",
    "005_chat_multi_turn_next.json": "/v1/chat/completions",
    "006_chat_content_parts_text.json": "/v1/chat/completions",
    "007_chat_image_base64.json": "/v1/chat/completions",
    "008_chat_image_base64_other_image.json": "/v1/chat/completions",
    "010_chat_input_audio.json": "/v1/chat/completions",
    "012_chat_assistant_content_null.json": "/v1/chat/completions",
    "014_chat_assistant_content_empty.json": "/v1/chat/completions",
    "015_chat_tools.json": "/v1/chat/completions",
    "017_chat_no_tools.json": "/v1/chat/completions",
    "018_chat_parallel_tool_results.json": "/v1/chat/completions",
    "019_chat_tool_choice_named_strict.json": "/v1/chat/completions",
    "020_chat_response_format_schema.json": "/v1/chat/completions",
    "021_chat_prefill_continue.json": "/v1/chat/completions",
    "023_chat_template_kwargs_off.json": "/v1/chat/completions",
    "024_chat_cache_salt.json": "/v1/chat/completions",
    "025_chat_unicode_raw.json": "/v1/chat/completions",
    "027_chat_lone_surrogate.json": "/v1/chat/completions",
    "029_chat_long_system_tenantA_q1.json": "/v1/chat/completions",
    "030_chat_long_system_tenantA_q2.json": "/v1/chat/completions",
    "031_chat_long_system_one_char_head.json": "/v1/chat/completions",
    "033_chat_legacy_functions.json": "/v1/chat/completions",
    "034_chat_developer_role.json": "/v1/chat/completions",
    "036_chat_sampling_nulls_stop.json": "/v1/chat/completions",
    "037_chat_names.json": "/v1/chat/completions",
    "039_chat_messages_empty.json": "/v1/chat/completions",
    "040_chat_messages_wrong_type.json": "/v1/chat/completions",
    "043_chat_truncated.json": "/v1/chat/completions",
    "050_completions_string.json": "/v1/completions",
    "051_completions_list_of_strings.json": "/v1/completions",
    "052_completions_token_ids.json": "/v1/completions",
    "054_completions_single_element_list.json": "/v1/completions",
    "056_completions_prompt_missing.json": "/v1/completions",
    "057_completions_prompt_embeds.json": "/v1/completions",
    "060_responses_string.json": "/v1/responses",
    "061_responses_items_tools.json": "/v1/responses",
    "070_messages_system_string.json": "/v1/messages",
    "071_messages_system_blocks_cache.json": "/v1/messages",
    "072_messages_tool_use_result.json": "/v1/messages",
    "080_embeddings_string.json": "/v1/embeddings",
    "081_embeddings_list.json": "/v1/embeddings",
    "082_embeddings_tokens.json": "/v1/embeddings",
    "084_rerank.json": "/rerank",
    "086_tokenize_prompt.json": "/tokenize",
    "088_detokenize.json": "/detokenize",
    "090_audio_transcription.multipart": "/v1/audio/transcriptions",
    "091_audio_speech.json": "/v1/audio/speech",
    "093_sglang_generate_text.json": "/generate",
    "095_vllm_inference_generate.json": "/inference/v1/generate",
}

_FOLDER: Final = Path(__file__).parent


def load(name: str) -> bytes:
    """The body whose file name begins with ``name``, a number such as ``"001"``."""
    return (_FOLDER / full_name(name)).read_bytes()


def path_of(name: str) -> str:
    """The path of the body whose file name begins with ``name``."""
    return PATHS[full_name(name)]


def content_type_of(name: str) -> str:
    """The content type of the body whose file name begins with ``name``."""
    if full_name(name).endswith(".multipart"):
        return "multipart/form-data; boundary=----formboundary7d1"
    return "application/json"


def full_name(name: str) -> str:
    """The file name that begins with ``name``."""
    return next(full for full in PATHS if full.startswith(name))
