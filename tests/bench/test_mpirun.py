"""Whose `mpirun` starts the ranks of a benchmark, and what it is told."""

import pytest

from hocket.errors import UsageError
from hocket.tools.bench.collectives import mpirun

pytestmark = pytest.mark.tools

SAYS = {"Open MPI": "mpirun (Open MPI) 5.0.11", "MPICH": "HYDRA build details:\n    Version: 5.0.2"}


@pytest.fixture
def made(tmp_path):
    """Makes an mpirun that says who it is, with a library beside it."""

    def make(says):
        for folder in ("bin", "lib"):
            (tmp_path / folder).mkdir()
        path = tmp_path / "bin" / "mpirun"
        path.write_text(f'#!/bin/sh\necho "{says}"\n')
        path.chmod(0o755)
        (tmp_path / "lib" / "libmpi.so.12").touch()
        return path

    return make


@pytest.mark.parametrize("mpi", SAYS)
def test_each_mpi_is_known_by_what_it_says(made, mpi):
    """Flags of one MPI would be given to the other, which refuses them."""
    path = made(SAYS[mpi])
    found = mpirun.find(str(path))
    assert (found.path, found.mpi) == (str(path), mpi)
    spec = mpirun.process(["rank"], world=2, tcp=True, scratch="/x", asked=str(path))
    of_open_mpi = [name for name in spec.environment if name.startswith("OMPI_")]
    of_mpich = [name for name in spec.environment if name.startswith(("MPIR_", "FI_"))]
    assert bool(of_open_mpi) == (mpi == mpirun.OPEN_MPI)
    assert bool(of_mpich) == (mpi == mpirun.MPICH)
    assert ("--map-by" in spec.argv) == (mpi == mpirun.OPEN_MPI)
    assert spec.argv[-1] == "rank"
    assert str(path) in spec.argv


def test_mpi4py_loads_the_library_of_the_mpirun_that_was_asked_for(made, tmp_path):
    """Ranks would each be alone: the library of one MPI below the mpirun of another."""
    spec = mpirun.process(["rank"], world=2, tcp=False, scratch="/x", asked=str(made(SAYS["MPICH"])))
    assert spec.environment[mpirun.LIBRARY] == str(tmp_path / "lib" / "libmpi.so.12")


def test_another_mpirun_is_refused(made):
    """The benchmark would fail with a riddle in the words of a program that we know nothing of."""
    path = str(made("Intel(R) MPI Library"))
    with pytest.raises(UsageError, match=r"is not of Open MPI or MPICH\nhint: it says 'Intel"):
        mpirun.find(path)
    with pytest.raises(UsageError, match="which is not here at /nowhere"):
        mpirun.find("/nowhere")


def test_who_needs_open_mpi_gets_no_other(made):
    """The benchmark of rank orders would give Open MPI's settings to MPICH, which ignores them."""
    with pytest.raises(UsageError, match="is not of Open MPI\nhint"):
        mpirun.find(str(made(SAYS["MPICH"])), only=mpirun.OPEN_MPI)
