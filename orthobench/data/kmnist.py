"""KMNIST: 70 000 cursive Japanese characters in ten classes, in MNIST's format (Clanuwat et al. 2018)."""

from __future__ import annotations

from orthobench.data.mnist import packed
from orthobench.data.packed_idx import PackedIDX


class KMNIST(PackedIDX):
    name = "kmnist"
    title = "KMNIST"
    licence = "CC BY-SA 4.0"
    home = "http://codh.rois.ac.jp/kmnist/"
    downloads = packed(
        ("http://codh.rois.ac.jp/kmnist/dataset/kmnist/",),
        {
            "train-images-idx3-ubyte": ("bdb82020997e1d708af4cf47b453dcf7", 18_165_135),
            "train-labels-idx1-ubyte": ("e144d726b3acfaa3e44228e80efcd344", 29_497),
            "t10k-images-idx3-ubyte": ("5c965bf0a639b31b8f53240b1b52f4d7", 3_041_136),
            "t10k-labels-idx1-ubyte": ("7320c461ea6c1c855c0b718fb2a4b134", 5_120),
        },
    )
    files = {each.name: each.md5 for each in downloads}
    size = sum(each.size for each in downloads)
    torchvision_folder = "KMNIST/raw"
    cites = "clanuwat2018"
