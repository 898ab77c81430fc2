"""One page about one design, for people: what it is, whom it protects, why it is believed."""
