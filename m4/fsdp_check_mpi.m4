dnl FSDP_CHECK_MPI: the compiler can build an MPI-3 program; which MPI is it?
AC_DEFUN([FSDP_CHECK_MPI], [
AC_MSG_CHECKING([whether $CC links MPI programs])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]],
  [[MPI_Request r;
    return MPI_Ireduce_scatter_block(0, 0, 0, MPI_FLOAT, MPI_SUM,
                                     MPI_COMM_SELF, &r);]])],
  [AC_MSG_RESULT([yes])],
  [AC_MSG_RESULT([no])
   AC_MSG_ERROR([no MPI: apt install libmpich-dev mpich, or pass CC=/path/to/mpicc])])
AC_COMPUTE_INT([fsdp_mpich], [MPICH_NUMVERSION], [[#include <mpi.h>]], [fsdp_mpich=0])
AS_IF([test "$fsdp_mpich" -gt 0],
  [fsdp_mpi_version="MPICH $fsdp_mpich"],
  [fsdp_mpi_version="not MPICH (untested)"])
AS_IF([test "x$MPIEXEC" = xno],
  [AC_MSG_ERROR([no mpiexec: apt install mpich, or pass MPIEXEC=/path/to/mpiexec])])
])
