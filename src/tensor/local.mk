## src/tensor: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES +=

## Every file of kernels/ is compiled twice: for float, and with
## FSDP_REAL_IS_DOUBLE defined for double.
FSDP_KERNEL_SOURCES =

noinst_LTLIBRARIES += libfsdp_kernels_f32.la libfsdp_kernels_f64.la
libfsdp_kernels_f32_la_SOURCES  = $(FSDP_KERNEL_SOURCES)
libfsdp_kernels_f32_la_CPPFLAGS = $(AM_CPPFLAGS)
libfsdp_kernels_f64_la_SOURCES  = $(FSDP_KERNEL_SOURCES)
libfsdp_kernels_f64_la_CPPFLAGS = $(AM_CPPFLAGS) -DFSDP_REAL_IS_DOUBLE
libfsdp_la_LIBADD += libfsdp_kernels_f32.la libfsdp_kernels_f64.la
