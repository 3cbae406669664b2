dnl FSDP_CHECK_JANSSON: JSON with duplicate keys refused, which the call linked
dnl asks for.
AC_DEFUN([FSDP_CHECK_JANSSON], [
PKG_CHECK_MODULES([JANSSON], [jansson >= 2.13], [],
  [AC_MSG_ERROR([no Jansson: apt install libjansson-dev])])
fsdp_save_CPPFLAGS=$CPPFLAGS
fsdp_save_LIBS=$LIBS
CPPFLAGS="$JANSSON_CFLAGS $CPPFLAGS"
LIBS="$JANSSON_LIBS $LIBS"
AC_CACHE_CHECK([whether Jansson links], [fsdp_cv_jansson],
  [AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <jansson.h>]],
     [[json_error_t e;
       return json_loads("{}", JSON_REJECT_DUPLICATES, &e) == NULL;]])],
     [fsdp_cv_jansson=yes], [fsdp_cv_jansson=no])])
AS_IF([test "$fsdp_cv_jansson" = no],
  [AC_MSG_ERROR([Jansson does not link: apt install --reinstall libjansson-dev])])
CPPFLAGS=$fsdp_save_CPPFLAGS
LIBS=$fsdp_save_LIBS
])
