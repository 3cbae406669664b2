dnl FSDP_CHECK_XXHASH: checksums of checkpoints; XXH3 is there since 0.8.
dnl Sets XXHASH_CFLAGS and XXHASH_LIBS.
AC_DEFUN([FSDP_CHECK_XXHASH], [
PKG_CHECK_MODULES([XXHASH], [libxxhash >= 0.8], [],
  [AC_MSG_ERROR([no xxHash: apt install libxxhash-dev])])
])
