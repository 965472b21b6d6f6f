"""Tools that examine jobs and plans from outside: analysis, formats, reports, replay, simulation, testbeds. The core imports
none."""
