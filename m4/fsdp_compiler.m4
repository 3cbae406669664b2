dnl FSDP_ADD_CFLAG(VARIABLE, FLAG): adds FLAG to VARIABLE if $CC takes it.
AC_DEFUN([FSDP_ADD_CFLAG], [
AC_MSG_CHECKING([whether $CC takes $2])
fsdp_save_CFLAGS=$CFLAGS
CFLAGS="$CFLAGS -Werror $2"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
  [AC_MSG_RESULT([yes]); AS_VAR_APPEND([$1], [" $2"])],
  [AC_MSG_RESULT([no])])
CFLAGS=$fsdp_save_CFLAGS
])

dnl FSDP_CHECK_TARGET_CLONES: can the compiler make one function for several
dnl generations of x86-64, chosen by the dynamic linker?  Sanitizers cannot
dnl start such a program (they are not ready when it chooses), so under
dnl --enable-sanitize the plain function is used.
AC_DEFUN([FSDP_CHECK_TARGET_CLONES], [
AC_CACHE_CHECK([for target_clones up to x86-64-v4], [fsdp_cv_target_clones],
  [AC_LINK_IFELSE([AC_LANG_SOURCE([[
     __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3",
                                  "default")))
     float twice(float x) { return x + x; }
     int main(int argc, char **argv)
     { (void)argv; return twice((float)argc) != 2.0f; }]])],
     [fsdp_cv_target_clones=yes], [fsdp_cv_target_clones=no])])
AS_IF([test "$fsdp_cv_target_clones" = yes && test "x$enable_sanitize" = xno],
  [AC_DEFINE([HAVE_TARGET_CLONES], [1],
     [Kernels are compiled for x86-64-v4, x86-64-v3 and the baseline.])])
])
