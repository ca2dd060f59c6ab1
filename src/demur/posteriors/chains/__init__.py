"""What the Markov chains share: steps, schedule, minibatches, noise, files."""
