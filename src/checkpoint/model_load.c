/* Reading all parameters of a model from a file or a folder. */
#include "fsdp/model_file.h"

#include <stdio.h>
#include <string.h>

#include "checkpoint/model_file.h"
#include "checkpoint/weights.h"
#include "fsdp/memory.h"
#include "fsdp/tensor.h"

/* ---- names -------------------------------------------------------------- */

static bool
ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), n = strlen(end);
    return length >= n && strcmp(name + length - n, end) == 0;
}

static fsdp_parameter_t *
find_parameter(const fsdp_parameter_list_t *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(fsdp_weights_bare_name(list->parameter[i]->name),
                   fsdp_weights_bare_name(name)) == 0)
            return list->parameter[i];
    return NULL;
}

/* The token embedding of a GPT-2 or a Llama, which a tied head shares. */
static fsdp_parameter_t *
find_embedding(const fsdp_parameter_list_t *list)
{
    fsdp_parameter_t *gpt2 = find_parameter(list, "wte.weight");
    return gpt2 != NULL ? gpt2
                        : find_parameter(list, "model.embed_tokens.weight");
}

/* ---- shapes ------------------------------------------------------------- */

enum { SHAPE_TEXT = 24 * FSDP_SAFETENSORS_MAX_DIMS };

/* "[7, 5]" */
static void
format_shape(const uint64_t *shape, int ndim, char text[SHAPE_TEXT])
{
    size_t length = (size_t)snprintf(text, SHAPE_TEXT, "[");
    for (int d = 0; d < ndim; d++)
        length += (size_t)snprintf(text + length, SHAPE_TEXT - length, "%s%ju",
                                   d > 0 ? ", " : "", (uintmax_t)shape[d]);
    snprintf(text + length, SHAPE_TEXT - length, "]");
}

static bool
same_shape(const fsdp_parameter_t *parameter,
           const fsdp_safetensors_entry_t *entry)
{
    size_t shape[FSDP_MAX_DIMS];
    fsdp_parameter_whole_shape(parameter, shape);
    if (parameter->ndim != entry->ndim)
        return false;
    for (int d = 0; d < entry->ndim; d++)
        if (shape[d] != entry->shape[d])
            return false;
    return true;
}

static fsdp_status_t
wrong_shape(const char *path, const fsdp_parameter_t *parameter,
            const fsdp_safetensors_entry_t *entry)
{
    char have[SHAPE_TEXT], need[SHAPE_TEXT];
    size_t whole[FSDP_MAX_DIMS];
    uint64_t shape[FSDP_MAX_DIMS];
    fsdp_parameter_whole_shape(parameter, whole);
    for (int d = 0; d < parameter->ndim; d++)
        shape[d] = whole[d];
    format_shape(entry->shape, entry->ndim, have);
    format_shape(shape, parameter->ndim, need);
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s: tensor %s has the shape %s, the model needs %s; is "
                      "the file of a model of other sizes?",
                      path, entry->name, have, need);
}

/* ---- what the file must hold -------------------------------------------- */

static fsdp_status_t
check_parameter(const char *path, const fsdp_weights_t *weights,
                const fsdp_parameter_t *parameter)
{
    bool twice;
    fsdp_stored_t stored =
        fsdp_weights_find_bare(weights, parameter->name, &twice);
    const fsdp_safetensors_entry_t *entry = stored.entry;
    if (entry == NULL)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: tensor %s is missing; is the file of another "
                          "model?",
                          path, parameter->name);
    if (twice)
        return fsdp_error(
            FSDP_ERR_INPUT,
            "%s: tensor %s is there twice, with the prefix \"%s\" "
            "and without",
            path, fsdp_weights_bare_name(parameter->name),
            strstr(parameter->name, "model.") == parameter->name
                ? "model."
                : "transformer.");
    path = stored.path;
    if (!same_shape(parameter, entry))
        return wrong_shape(path, parameter, entry);
    if (!fsdp_dtype_is_floating(entry->dtype))
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: tensor %s is of type %s; a parameter is of a "
                          "floating type",
                          path, entry->name, fsdp_dtype_name(entry->dtype));
    return FSDP_OK;
}

/* Files hold more than parameters: the head, even if it is tied to the embedding
 * and so no parameter of its own; in old ones GPT-2's causal mask, Llama's
 * frequencies. */
static fsdp_status_t
check_superfluous(const char *path, const fsdp_parameter_list_t *list,
                  const fsdp_safetensors_entry_t *entry)
{
    if (ends_with(entry->name, ".attn.bias") ||
        ends_with(entry->name, ".attn.masked_bias") ||
        ends_with(entry->name, ".rotary_emb.inv_freq"))
        return FSDP_OK;
    if (strcmp(fsdp_weights_bare_name(entry->name), "lm_head.weight") == 0) {
        fsdp_parameter_t *tied = find_embedding(list);
        if (tied != NULL)
            return same_shape(tied, entry) ? FSDP_OK
                                           : wrong_shape(path, tied, entry);
    }
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s: tensor %s is superfluous, the model has no such "
                      "parameter; is the file of another model?",
                      path, entry->name);
}

static fsdp_status_t
check_contents(const char *path, const fsdp_weights_t *weights,
               const fsdp_parameter_list_t *list)
{
    fsdp_status_t status = FSDP_OK;
    for (size_t i = 0; i < list->count && status == FSDP_OK; i++)
        status = check_parameter(path, weights, list->parameter[i]);
    for (size_t f = 0; f < weights->count; f++) {
        const fsdp_safetensors_t *file = weights->file[f];
        for (size_t i = 0; i < fsdp_safetensors_count(file); i++) {
            const fsdp_safetensors_entry_t *entry =
                fsdp_safetensors_entry(file, i);
            if (status == FSDP_OK && find_parameter(list, entry->name) == NULL)
                status = check_superfluous(weights->path[f], list, entry);
        }
    }
    return status;
}

/* ---- loading ------------------------------------------------------------ */

/* Elements [begin, begin + count) of a tensor, some at a time if they must be
 * converted to `dtype`. */
static fsdp_status_t
read_elements(fsdp_stored_t stored, size_t begin, size_t count,
              fsdp_dtype_t dtype, char *out)
{
    enum { CHUNK = 1 << 16 };
    const fsdp_safetensors_t *file = stored.file;
    const fsdp_safetensors_entry_t *entry = stored.entry;
    fsdp_status_t status = FSDP_OK;
    if (entry->dtype == dtype)
        return fsdp_safetensors_read(file, entry, begin, count, out);
    void *piece =
        fsdp_alloc(FSDP_MEM_OTHER, CHUNK * fsdp_dtype_size(entry->dtype));
    for (size_t at = 0; at < count && status == FSDP_OK; at += CHUNK) {
        size_t n = count - at < CHUNK ? count - at : CHUNK;
        status = fsdp_safetensors_read(file, entry, begin + at, n, piece);
        if (status == FSDP_OK)
            fsdp_convert(entry->dtype, piece, dtype,
                         out + at * fsdp_dtype_size(dtype), n);
    }
    fsdp_free(piece);
    return status;
}

/* This rank's elements, run after run. */
static fsdp_status_t
load_parameter(const fsdp_weights_t *weights, fsdp_parameter_t *parameter)
{
    bool twice;
    fsdp_stored_t stored =
        fsdp_weights_find_bare(weights, parameter->name, &twice);
    fsdp_local_t local = fsdp_parameter_local(parameter);
    size_t size = fsdp_dtype_size(parameter->dtype);
    fsdp_status_t status = FSDP_OK;
    fsdp_run_t run = {0};
    while (status == FSDP_OK && fsdp_layout_next_run(&local.layout, &run))
        status = read_elements(stored, run.whole, run.count, parameter->dtype,
                               (char *)local.data + run.local * size);
    return status;
}

/* Do two tensors of one type have the same bytes there? */
static fsdp_status_t
compare_elements(fsdp_stored_t a, fsdp_stored_t b, fsdp_run_t run, bool *same)
{
    enum { CHUNK = 1 << 14 };
    size_t size = fsdp_dtype_size(a.entry->dtype);
    char *two = fsdp_alloc(FSDP_MEM_OTHER, 2 * CHUNK * size);
    fsdp_status_t status = FSDP_OK;
    for (size_t at = 0; at < run.count && *same; at += CHUNK) {
        size_t n = run.count - at < CHUNK ? run.count - at : CHUNK;
        status = fsdp_safetensors_read(a.file, a.entry, run.whole + at, n, two);
        if (status == FSDP_OK)
            status = fsdp_safetensors_read(b.file, b.entry, run.whole + at, n,
                                           two + CHUNK * size);
        if (status != FSDP_OK)
            break;
        *same = memcmp(two, two + CHUNK * size, n * size) == 0;
    }
    fsdp_free(two);
    return status;
}

/* A head that is tied to the embedding must not differ from it in the file: it
 * would be lost without a word.  Each rank looks at its own elements. */
static fsdp_status_t
check_tied_head(const fsdp_weights_t *weights,
                const fsdp_parameter_list_t *list)
{
    bool twice, same = true;
    fsdp_status_t status = FSDP_OK;
    fsdp_parameter_t *tied = find_embedding(list);
    fsdp_stored_t head =
        fsdp_weights_find_bare(weights, "lm_head.weight", &twice);
    if (tied == NULL || head.entry == NULL ||
        find_parameter(list, head.entry->name))
        return FSDP_OK;
    fsdp_stored_t wte = fsdp_weights_find_bare(weights, tied->name, &twice);
    fsdp_local_t local = fsdp_parameter_local(tied);
    fsdp_run_t run = {0};
    same = head.entry->dtype == wte.entry->dtype;
    while (same && status == FSDP_OK &&
           fsdp_layout_next_run(&local.layout, &run))
        status = compare_elements(wte, head, run, &same);
    if (!same)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: %s differs from %s, but the head of this model "
                          "is the embedding; build it with an untied head",
                          head.path, head.entry->name, wte.entry->name);
    return status;
}

/* Nothing is changed before all ranks have seen a file that fits. */
fsdp_status_t
fsdp_model_load(fsdp_module_t *model, fsdp_comm_t *comm, const char *path)
{
    fsdp_parameter_list_t list = fsdp_parameter_list_of(model);
    fsdp_weights_t *weights = NULL;
    fsdp_status_t status = fsdp_weights_open(path, &weights);
    if (status == FSDP_OK)
        status = check_contents(path, weights, &list);
    if (status == FSDP_OK)
        status = check_tied_head(weights, &list);
    status = fsdp_agree_if_several(comm, status);

    if (status == FSDP_OK) {
        for (size_t i = 0; i < list.count && status == FSDP_OK; i++)
            status = load_parameter(weights, list.parameter[i]);
        status = fsdp_agree_if_several(comm, status);
    }
    fsdp_weights_close(&weights);
    fsdp_free(list.parameter);
    return status;
}
