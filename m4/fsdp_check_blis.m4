dnl FSDP_CHECK_BLIS: find blis.h and libblis, set BLIS_CPPFLAGS and BLIS_LIBS.
dnl Debian 12 ships no blis.pc; its header is <blis.h> in the multiarch folder,
dnl while upstream's "make install" puts it in $prefix/include/blis.
dnl The call linked is the one that the library needs: the expert interface,
dnl with the small-matrix path switched off, as BLIS 0.9 and 1.1 both have it.
AC_DEFUN([FSDP_CHECK_BLIS], [
AC_ARG_WITH([blis],
  [AS_HELP_STRING([--with-blis=PREFIX], [where upstream BLIS is installed])],
  [], [with_blis=])
AS_IF([test -n "$with_blis"],
  [BLIS_CPPFLAGS="-isystem $with_blis/include/blis -isystem $with_blis/include"
   BLIS_LIBS="-L$with_blis/lib -Wl,-rpath,$with_blis/lib"])
fsdp_save_CPPFLAGS=$CPPFLAGS
fsdp_save_LIBS=$LIBS
CPPFLAGS="$BLIS_CPPFLAGS $CPPFLAGS"
BLIS_LIBS="$BLIS_LIBS -lblis -lm" # inline functions of blis.h call round()
LIBS="$BLIS_LIBS $LIBS"
AC_CACHE_CHECK([for BLIS], [fsdp_cv_blis],
  [AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <blis.h>]],
     [[float x = 1;
       rntm_t rntm = BLIS_RNTM_INITIALIZER;
       bli_rntm_disable_l3_sup(&rntm);
       bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, 1, 1, 1, &x, &x, 1, 1,
                    &x, 1, 1, &x, &x, 1, 1, 0, &rntm);
       return x != 2;]])],
     [fsdp_cv_blis=yes], [fsdp_cv_blis=no])])
AS_IF([test "$fsdp_cv_blis" = no],
  [AC_MSG_ERROR([no BLIS: apt install libblis-openmp-dev, or pass --with-blis=PREFIX])])
CPPFLAGS=$fsdp_save_CPPFLAGS
LIBS=$fsdp_save_LIBS
AC_SUBST([BLIS_CPPFLAGS])
AC_SUBST([BLIS_LIBS])
])
