#include "hand_trace.h"

#include <check.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char hand_folder[64];

void
hand_trace_begin(void)
{
    snprintf(hand_folder, sizeof hand_folder, "/tmp/fsdp-trace-XXXXXX");
    ck_assert(mkdtemp(hand_folder) != NULL);
}

static int
take_away(const char *path, const struct stat *about, int kind,
          struct FTW *place)
{
    (void)about, (void)kind, (void)place;
    return remove(path);
}

void
hand_trace_end(void)
{
    ck_assert(nftw(hand_folder, take_away, 8, FTW_DEPTH | FTW_PHYS) == 0);
}

static FILE *
make(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", hand_folder, name);
    for (char *at = path + strlen(hand_folder) + 1;
         (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(path, 0777);
        *at = '/';
    }
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "%s", path);
    return file;
}

void
hand_put(const char *name, const char *text)
{
    FILE *file = make(name);
    fputs(text, file);
    fclose(file);
}

void
hand_remove(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", hand_folder, name);
    ck_assert(remove(path) == 0);
}

/* One value in the tensor's type. */
static size_t
encode(const hand_tensor_t *tensor, float value, unsigned char *out)
{
    const char *dtype = tensor->dtype != NULL ? tensor->dtype : "F32";
    int32_t i32 = (int32_t)value;
    int64_t i64 = (int64_t)value;
    double f64 = value;
    uint16_t bf16;
    memcpy(&bf16, (char *)&value + 2, 2);
    if (strcmp(dtype, "I32") == 0)
        return memcpy(out, &i32, 4), 4;
    if (strcmp(dtype, "I64") == 0)
        return memcpy(out, &i64, 8), 8;
    if (strcmp(dtype, "F64") == 0)
        return memcpy(out, &f64, 8), 8;
    if (strcmp(dtype, "BF16") == 0)
        return memcpy(out, &bf16, 2), 2;
    return memcpy(out, &value, 4), 4;
}

void
hand_put_tensors(const char *name, const hand_tensor_t *tensor, size_t count)
{
    char header[4096] = "{";
    unsigned char data[2048];
    size_t used = 1, end = 0;
    for (size_t i = 0; i < count; i++) {
        size_t begin = end;
        for (size_t k = 0; k < tensor[i].numel; k++)
            end += encode(&tensor[i], tensor[i].values[k], data + end);
        used += (size_t)snprintf(
            header + used, sizeof header - used,
            "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]"
            "}",
            i > 0 ? "," : "", tensor[i].key,
            tensor[i].dtype != NULL ? tensor[i].dtype : "F32", tensor[i].shape,
            begin, end);
    }
    header[used++] = '}';
    FILE *file = make(name);
    for (int i = 0; i < 8; i++)
        fputc((int)(used >> 8 * i & 255), file);
    fwrite(header, 1, used, file);
    fwrite(data, 1, end, file);
    fclose(file);
}
