dnl FSDP_CHECK_PCRE2: regular expressions with Unicode's classes, by which
dnl tokenizers cut text.  Sets PCRE2_CFLAGS and PCRE2_LIBS.
AC_DEFUN([FSDP_CHECK_PCRE2], [
PKG_CHECK_MODULES([PCRE2], [libpcre2-8 >= 10.30], [],
  [AC_MSG_ERROR([no PCRE2: apt install libpcre2-dev])])
])
