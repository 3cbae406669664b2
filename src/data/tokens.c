/* Files of tokens, of llm.c and of nanoGPT. */
#include <stdio.h>
#include <string.h>

#include "base/whole_file.h"
#include "data/dataset.h"
#include "fsdp/memory.h"

enum { HEADER = 256 * 4 };

/* What llm.c's files begin with: magic, version, and the bytes of a token. */
static const struct {
    int32_t magic, version;
    size_t width;
} kind[] = {{20240520, 1, 2}, {20240801, 7, 4}};
enum { KINDS = 2 };

/* ---- reading ---------------------------------------------------------------- */

fsdp_data_format_t
fsdp_data_detect(const char *path)
{
    unsigned char begin[4] = {0};
    int32_t magic;
    FILE *file = fsdp_data_open_regular(path);
    size_t got = file != NULL ? fread(begin, 1, sizeof begin, file) : 0;
    if (file != NULL)
        fclose(file);
    memcpy(&magic, begin, sizeof magic);
    if (got >= 2 && begin[0] == 0x1f && begin[1] == 0x8b)
        return FSDP_DATA_GZIP;
    if (got < sizeof begin)
        return FSDP_DATA_PLAIN;
    for (int k = 0; k < KINDS; k++)
        if (magic == kind[k].magic)
            return FSDP_DATA_LLMC;
    return begin[0] == 0 && begin[1] == 0 && begin[2] >= 8 && begin[2] <= 14 &&
                   begin[3] >= 1
               ? FSDP_DATA_IDX
               : FSDP_DATA_PLAIN;
}

static fsdp_status_t
bad(const char *path, const char *what)
{
    return fsdp_error(FSDP_ERR_INPUT,
                      "data file %s %s; is it of another format, or truncated? "
                      "(--data-format)",
                      path, what);
}

/* The header of llm.c: magic, version, number of tokens. */
static fsdp_status_t
read_header(const char *path, const char *text, size_t length, size_t *width,
            size_t *count)
{
    int32_t header[3];
    int k = 0;
    if (length < HEADER)
        return bad(path, "is shorter than llm.c's header of 1024 bytes");
    memcpy(header, text, sizeof header);
    while (k < KINDS && kind[k].magic != header[0])
        k++;
    if (k == KINDS)
        return bad(path, "does not begin with a magic number of llm.c");
    if (header[1] != kind[k].version)
        return bad(path, "is of another version of llm.c's format");
    *width = kind[k].width;
    *count = (length - HEADER) / *width;
    if (header[2] < 0 || (size_t)header[2] != *count ||
        (length - HEADER) % *width != 0)
        return bad(path, "has another number of tokens than its header says");
    return FSDP_OK;
}

fsdp_status_t
fsdp_dataset_open_tokens(const char *path, fsdp_data_format_t format,
                         size_t context, fsdp_dataset_t **dataset)
{
    char *text;
    size_t length, width = 2, count;
    *dataset = NULL;
    fsdp_status_t status = fsdp_data_read_file(path, &text, &length);
    if (status != FSDP_OK)
        return status;
    count = length / width;
    if (format == FSDP_DATA_LLMC)
        status = read_header(path, text, length, &width, &count);
    else if (length % width != 0)
        status = bad(path, "has an odd number of bytes");
    if (status != FSDP_OK) {
        fsdp_free(text);
        return status;
    }
    return fsdp_dataset_take_tokens(path, text, width,
                                    format == FSDP_DATA_LLMC ? HEADER : 0,
                                    count, context, "tokens", dataset);
}

/* ---- writing ----------------------------------------------------------------- */

fsdp_status_t
fsdp_data_write_tokens(const char *path, fsdp_data_format_t format,
                       const int32_t *tokens, size_t count)
{
    bool llmc = format == FSDP_DATA_LLMC;
    int32_t largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = tokens[i] > largest ? tokens[i] : largest;
    int k = largest > UINT16_MAX;
    if ((k > 0 && !llmc) || count > INT32_MAX)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: %s; choose another format, or a shorter text",
                          path,
                          k > 0 ? "nanoGPT's files have no tokens above 65535"
                                : "2^31 tokens and more do not fit");
    size_t header = llmc ? HEADER : 0, width = kind[k].width;
    char *text = fsdp_calloc(FSDP_MEM_OTHER, header + count * width + 1);
    int32_t begin[3] = {kind[k].magic, kind[k].version, (int32_t)count};
    if (llmc)
        memcpy(text, begin, sizeof begin);
    for (size_t i = 0; i < count; i++)
        memcpy(text + header + i * width, &tokens[i], width);
    fsdp_status_t status =
        fsdp_file_replace(path, text, header + count * width);
    fsdp_free(text);
    return status;
}
