/** \file hand_trace.h  Traces written byte by byte, for tests of their reader. */
#ifndef HAND_TRACE_H
#define HAND_TRACE_H

#include <stddef.h>

/** The folder, made by hand_trace_begin() and taken away by hand_trace_end(). */
extern char hand_folder[];

void hand_trace_begin(void);
void hand_trace_end(void);
/** A file of the folder, with its folders; formatted. */
void hand_put(const char *name, const char *text);
void hand_remove(const char *name);

/** A tensor of float32 (or, with `dtype`, of "I32", "I64", "F64"), whose shape is
 *  given as JSON. */
typedef struct hand_tensor {
    const char *key, *shape;
    size_t numel;
    float values[8];
    const char *dtype;
} hand_tensor_t;

/** A safetensors file of these. */
void hand_put_tensors(const char *name, const hand_tensor_t *tensor,
                      size_t count);

#endif
