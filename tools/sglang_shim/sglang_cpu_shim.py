"""Imported at the start of every Python of the environment that ``tools/sglang_cpu`` makes (by a .pth file).

SGLang starts processes of its own, so a change in one process would not do. Does: chooses SGLang's CPU engine, and
declares the two operators of torchvision that its Python part wants to annotate but that come with a compiled part
which fits no CPU build of torch.
"""

import importlib.abc
import os
import sys

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")

OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


class BeforeTorchvision(importlib.abc.MetaPathFinder):
    """Declares the operators when torchvision is about to be imported, then steps aside."""

    library = None

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            # Kept: what a library declares goes with it.
            BeforeTorchvision.library = torch.library.Library("torchvision", "DEF")
            for operator in OPERATORS:
                BeforeTorchvision.library.define(operator)
        return None


sys.meta_path.insert(0, BeforeTorchvision())
