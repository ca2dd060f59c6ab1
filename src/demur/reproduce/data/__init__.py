"""Readers of the data sets that studies use.

idx               files in the IDX format (MNIST and similar)
npz               named arrays from an .npz file
mnist             MNIST and Fashion-MNIST
cifar10           CIFAR-10
uci               UCI regression data sets with their published splits
image_folders     folders of images
imagenet          ImageNet validation images, ImageNet-O and ImageNet-A as published
imagenet_labels   the label files that ImageNet is published with
"""
