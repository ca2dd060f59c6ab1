"""What methods that sample only the last layer share: features, training, products."""
