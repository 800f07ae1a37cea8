"""Models of the Hugging Face hub, through its own client: its cache, its tokens, its offline switch.

Only what is needed is fetched: first configuration and tokenizer, weights when they are asked for.
"""

from __future__ import annotations

import re
from pathlib import Path

from effkit.errors import SourceError

_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_SMALL = ["*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken"]
_CODE = ["*.py"]
_WEIGHTS = ["model.safetensors", "model-*.safetensors", "model.safetensors.index.json"]
_PICKLED = ["pytorch_model.bin", "pytorch_model-*.bin", "pytorch_model.bin.index.json"]


def looks_like_hub_id(source: str) -> bool:
    """True for ``name`` and ``owner/name``; False for anything that can only be a path."""
    return (
        bool(_ID.fullmatch(source)) and ".." not in source and not source.endswith((".gguf", ".safetensors", ".json"))
    )


def fetch_small(repo: str, revision: str | None, with_code: bool) -> Path:
    """Fetch configuration and tokenizer; return the snapshot's folder.

    Raises:
        SourceError: no such model, no access, no network, or not cached while offline.
    """
    folder = _snapshot(repo, revision, _SMALL + (_CODE if with_code else []))
    if not (folder / "config.json").is_file():
        raise SourceError(
            f"{repo}: no config.json {'in the local cache' if _is_offline() else 'on the hub'}; effkit needs a model "
            "in transformers' format"
        )
    return folder


def fetch_weights(repo: str, revision: str, snapshot: Path) -> None:
    """Fetch the weights into the same snapshot, safetensors where there are any."""
    _snapshot(repo, revision, _WEIGHTS)
    if not any(snapshot.glob("model*.safetensors")):
        _snapshot(repo, revision, _PICKLED)


def _snapshot(repo: str, revision: str | None, patterns: list[str]) -> Path:
    import huggingface_hub
    from huggingface_hub import errors

    try:
        found = huggingface_hub.snapshot_download(
            repo, revision=revision, allow_patterns=patterns, ignore_patterns=["*/*"], local_files_only=_is_offline()
        )
    except errors.GatedRepoError as error:
        raise SourceError(f"{repo} is gated: accept its terms on the hub and log in (hf auth login)") from error
    except errors.RevisionNotFoundError as error:
        raise SourceError(f"{repo} has no revision {revision!r}") from error
    except errors.RepositoryNotFoundError as error:
        raise SourceError(f"the hub has no model {repo!r} that you may read; check its spelling, or log in") from error
    except errors.HFValidationError as error:
        raise SourceError(f"{repo!r} is not a hub id: {error}") from error
    except errors.LocalEntryNotFoundError as error:
        state = "offline mode is on (HF_HUB_OFFLINE)" if _is_offline() else "the hub cannot be reached"
        raise SourceError(f"{repo} is not in the local cache and {state}") from error
    except (OSError, errors.HfHubHTTPError) as error:
        raise SourceError(f"{repo} could not be fetched from the hub: {_first_line(error)}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("httpx", "httpcore", "requests", "urllib3"):
            raise SourceError(f"{repo} is not in the local cache and the hub cannot be reached") from error
        raise
    return Path(found)


def _is_offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
