"""A fleet to try things with: what its instances look like, and what keeps happening to them."""
