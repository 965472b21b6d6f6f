"""Steps in virtual time: networks of any shape, several fidelities behind one interface, traces of runs that never were."""
