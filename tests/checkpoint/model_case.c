#include "checkpoint/model_case.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

const given_spec_t specs[SPECS] = {
    {"transformer.wte.weight", 2, {7, 4}, GIVEN_USED},
    {"transformer.h.0.ln_1.weight", 1, {5}, GIVEN_USED},
    {"transformer.h.0.ln_1.bias", 1, {1}, GIVEN_FROZEN},
    {"transformer.h.0.c_fc.weight", 3, {2, 3, 5}, GIVEN_USED},
    {"transformer.ln_f.bias", 1, {9}, GIVEN_UNUSED},
};

const char *const shapes[SPECS] = {"7,4", "5", "1", "2,3,5", "9"};

fsdp_comm_t *world;
fsdp_mesh_t *mesh;
int rank;
char folder[64], path[LONG];

/* One folder for all ranks, named after rank 0's process. */
void
set_up(void)
{
    world = fsdp_comm_world();
    rank = fsdp_comm_rank(world);
    mesh = fsdp_mesh_create_1d();
    int64_t pid = getpid();
    fsdp_broadcast(world, "pid", FSDP_INT64, &pid, 1, 0);
    snprintf(folder, sizeof folder, "/tmp/fsdp-model-file-%ld", (long)pid);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (rank == 0)
        mkdir(folder, 0700);
    fsdp_barrier(world, "folder");
}

void
tear_down(void)
{
    fsdp_barrier(world, "folder");
    if (rank == 0) {
        unlink(path);
        rmdir(folder);
    }
    fsdp_mesh_destroy(&mesh);
}

double
value(const char *name, size_t e)
{
    return ((double)((strlen(name) * 31 + e * 7) % 251) - 125) / 8;
}

double
zero(const char *name, size_t e)
{
    (void)name;
    (void)e;
    return 0;
}

double
third(const char *name, size_t e)
{
    return value(name, e) / 3;
}

size_t
spec_numel(const given_spec_t *spec)
{
    size_t n = 1;
    for (int d = 0; d < spec->ndim; d++)
        n *= spec->shape[d];
    return n;
}

fsdp_module_t *
make(fsdp_dtype_t dtype, given_cut_t cut, given_fn_t fn)
{
    return given_create(specs, SPECS, dtype, mesh, cut, fn);
}

bool
has(fsdp_module_t *model, given_fn_t fn)
{
    fsdp_parameter_t *list[SPECS];
    size_t count = fsdp_module_parameters(model, list, SPECS);
    for (size_t p = 0; p < count; p++) {
        fsdp_local_t local = fsdp_parameter_local(list[p]);
        size_t begin = fsdp_layout_begin(&local.layout);
        for (size_t e = 0; e < local.numel; e++) {
            double want = fn(list[p]->name, begin + e);
            if (list[p]->dtype == FSDP_FP64
                    ? ((double *)local.data)[e] != want
                    : ((float *)local.data)[e] != (float)want)
                return false;
        }
    }
    return count == SPECS;
}

static size_t
width(const char *dtype)
{
    return (size_t)(dtype[0] == 'B' ? 16 : atoi(dtype + 1)) / 8;
}

void
hand_put(unsigned char *out, const char *dtype, double v)
{
    float f = (float)v;
    int32_t i = (int32_t)v;
    _Float16 h = (_Float16)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint16_t b = (uint16_t)(bits >> 16); /* of values that bf16 has */
    if (strcmp(dtype, "F64") == 0)
        memcpy(out, &v, 8);
    else if (strcmp(dtype, "F32") == 0)
        memcpy(out, &f, 4);
    else if (strcmp(dtype, "F16") == 0)
        memcpy(out, &h, 2);
    else if (strcmp(dtype, "BF16") == 0)
        memcpy(out, &b, 2);
    else
        memcpy(out, &i, 4);
}

static void
write_hand(const hand_t *hand, int count, given_fn_t fn)
{
    static char text[8192];
    size_t length = (size_t)snprintf(text, sizeof text, "{"), offset = 0;
    for (int i = 0; i < count; i++) {
        size_t end = offset + hand[i].numel * width(hand[i].dtype);
        length += (size_t)snprintf(text + length, sizeof text - length,
                                   "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
                                   "\"data_offsets\":[%zu,%zu]}",
                                   i > 0 ? "," : "", hand[i].name,
                                   hand[i].dtype, hand[i].shape, offset, end);
        offset = end;
    }
    length += (size_t)snprintf(text + length, sizeof text - length, "}");
    uint64_t n = length; /* little-endian, as all machines we know */
    FILE *file = fopen(path, "wb");
    fwrite(&n, 8, 1, file);
    fwrite(text, 1, length, file);
    for (int i = 0; i < count; i++)
        for (size_t e = 0; e < hand[i].numel; e++) {
            unsigned char bytes[8];
            hand_put(bytes, hand[i].dtype,
                     fn(hand[i].values_of, e) + (hand[i].wrong ? 1 : 0));
            fwrite(bytes, width(hand[i].dtype), 1, file);
        }
    fclose(file);
}

void
hand_model(hand_t hand[SPECS + 2], const char *dtype)
{
    for (int i = 0; i < SPECS; i++) {
        const given_spec_t *spec = &specs[SPECS - 1 - i];
        hand[i] = (hand_t){spec->name + strlen("transformer."),
                           dtype,
                           shapes[SPECS - 1 - i],
                           spec_numel(spec),
                           spec->name,
                           false};
    }
}

void
hand_write(const hand_t *hand, int count, given_fn_t fn)
{
    if (rank == 0)
        write_hand(hand, count, fn);
    fsdp_barrier(world, "file");
}
