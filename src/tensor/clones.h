/** \file clones.h  Floor 1, tensor: one function for several processors. */
#ifndef FSDP_TENSOR_CLONES_H
#define FSDP_TENSOR_CLONES_H

/** Marks a static function that gcc makes for three generations of x86-64; the
 *  machine's own is chosen when the program starts.  The body of an OpenMP
 *  region is not cloned, so such a function does one block of the work and
 *  threads/parallel.h calls it.  All clones give the same bits: nothing is
 *  contracted or reassociated by the compiler. */
#ifdef HAVE_TARGET_CLONES
#define FSDP_CLONES                                                            \
    __attribute__((                                                            \
        target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FSDP_CLONES
#endif

#endif
