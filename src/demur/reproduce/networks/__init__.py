"""Networks that studies use, and what is done with them.

pretrained          networks of torchvision, timm or the user, by name
efficientnet_lite   EfficientNet-Lite 0, 1 and 2 with their ImageNet weights
small               a LeNet and a small MLP
character_lstm      a character-level language model, two LSTM layers with attention
resnet20_frn        the ResNet-20 whose predictions by HMC are published for CIFAR-10
encode_images       a stage that runs images through a network
attacks             projected gradient descent
threads             PyTorch on one thread
"""
