"""What methods that sample by dropout share: layers, masks, and the pass before them."""
