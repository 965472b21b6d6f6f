"""Steps in virtual time: networks of any shape, several fidelities behind one interface, and traces of simulated runs."""
