"""Fashion-MNIST: 70 000 pictures of clothes in MNIST's format (Xiao, Rasul, Vollgraf 2017)."""

from __future__ import annotations

from orthobench.data.mnist import MNISTData, packed


class FashionMNIST(MNISTData):
    name = "fashion_mnist"
    title = "Fashion-MNIST"
    licence = "MIT"
    home = "https://github.com/zalandoresearch/fashion-mnist"
    files = {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    }
    downloads = packed(
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        {
            "train-images-idx3-ubyte": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            "train-labels-idx1-ubyte": ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
            "t10k-images-idx3-ubyte": ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            "t10k-labels-idx1-ubyte": ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        },
    )
    torchvision_folder = "FashionMNIST/raw"
    cites = "xiao2017"
