"""Four convolutional nets, planned without being run: no array is allocated, and no kernel is compiled.

MXNet's report of its memory planning (Chen et al., 2015, and the note on memory in its documentation) uses
similar nets with a batch of 64.
"""

from benchmarks.nets.alexnet import AlexNet
from benchmarks.nets.googlenet import GoogLeNet
from benchmarks.nets.layers import Net
from benchmarks.nets.resnet import ResNet50
from benchmarks.nets.vgg import VGG16

NETS: dict[str, type[Net]] = {
    "AlexNet": AlexNet,
    "VGG-16": VGG16,
    "GoogLeNet": GoogLeNet,
    "ResNet-50": ResNet50,
}
