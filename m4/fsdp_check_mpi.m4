dnl FSDP_CHECK_MPI: the compiler can build an MPI-3 program; which MPI is it, and
dnl does $MPIEXEC start one world of two ranks, not two worlds of one?  It does
dnl the latter when it belongs to another MPI than the compiler, and in Ubuntu
dnl 24.04, whose MPICH cannot be started by its own mpiexec (bug 2072338 there).
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

AC_CACHE_CHECK([whether $MPIEXEC starts one world], [fsdp_cv_mpi_world],
  [AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
#include <stdio.h>]],
     [[int size;
       MPI_Init(NULL, NULL);
       MPI_Comm_size(MPI_COMM_WORLD, &size);
       printf("size %d\n", size);
       MPI_Finalize();]])],
     [AS_CASE([`$MPIEXEC -n 2 ./conftest$EXEEXT 2>&AS_MESSAGE_LOG_FD`],
        [*"size 2"*], [fsdp_cv_mpi_world=yes],
        [*"size 1"*], [fsdp_cv_mpi_world=no],
        [fsdp_cv_mpi_world="not tried"])],
     [fsdp_cv_mpi_world="not tried"])])
AS_CASE([$fsdp_cv_mpi_world],
  [no], [AC_MSG_ERROR([$MPIEXEC starts ranks that do not see each other:
pass CC= and MPIEXEC= of one MPI.  Where the system's own MPICH does this, as
Ubuntu 24.04's, another is had by: python3 -m venv DIR && DIR/bin/pip install mpich])],
  ["not tried"], [AC_MSG_WARN([$MPIEXEC -n 2 started nothing here])])
])
