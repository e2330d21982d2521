"""The device a model runs on."""

import torch


def choose_device(device: str) -> str:
    """The device to decode on: `auto` takes a GPU where there is one.

    Raises:
        ValueError: for a device this machine does not have.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={device!r}: not to be had on this machine ({error}); try device=auto") from error
    return device
