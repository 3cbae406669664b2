#include "sound_trace.h"

#include <stdio.h>

#include "hand_trace.h"
#include "mck.h"

static const char about[] =
    "{\"format\":\"libfsdp-trace\",\"version\":1,\"producer\":\"by hand\","
    "\"api\":\"fsdp2\",\"world_size\":2,\"ranks\":[1,0],"
    "\"mesh\":{\"replicate\":1,\"shard\":2,\"tensor\":1},"
    "\"micro_batches\":1,\"gradient_sync\":\"each\","
    "\"steps\":[{\"step\":1,\"lr\":0.25}],"
    "\"model\":{\"type\":\"mlp\",\"config\":{\"widths\":[2,3]}},"
    "\"loss\":{\"kind\":\"mse\",\"average\":\"rank\",\"scale\":0.5},"
    "\"optimizer\":{\"name\":\"adamw\",\"betas\":[0.5,0.75],\"eps\":1e-6,"
    "\"weight_decay\":0.125},\"grad_clip\":null,\"norm_type\":\"inf\","
    "\"precision\":{\"dtype\":\"float32\",\"param_dtype\":\"bfloat16\","
    "\"reduce_dtype\":null,\"cast_forward_inputs\":false},"
    "\"averaging\":\"premultiply\",\"divide_factor\":4,"
    "\"reduce_order\":\"ring\",\"unknown member\":[{}],"
    "\"parameters\":[{\"name\":\"b\",\"shape\":[3],\"dtype\":\"float32\","
    "\"unit\":\"layers.1\"},{\"name\":\"a\",\"shape\":[2,3],\"unit\":"
    "\"layers.0\",\"weight_decay\":0,\"lr_factor\":2}],\"units\":[\"layers.1\","
    "\"layers.0\",\"(root)\"]}";

/* Parameter a [2,3] is cut along its columns: columns 0 and 1, column 2; b [3]
 * has two elements and one. */
static const char pieces[2][600] = {
    "{\"rank\":0,\"step\":0,\"pieces\":{\"parameter/-/a\":{\"shape\":[2,3],"
    "\"runs\":[[0,2,3,2]]},\"parameter/-/b\":{\"shape\":[3],\"runs\":"
    "[[0,2,0,1]]}}}",
    "{\"rank\":1,\"step\":0,\"data_parallel_rank\":1,\"pieces\":{\"parameter/-/"
    "a\":{\"shape\":[2,3],\"runs\":[[2,1,3,2]]},\"parameter/-/b\":{\"shape\":"
    "[3],\"runs\":[[2,1,0,1]]}},\"order\":[\"parameter/-/b\",\"parameter/-/"
    "a\"],\"ledger\":[{\"sequence\":1,\"kind\":\"all_gather\",\"unit\":"
    "\"layers.0\",\"dtype\":\"float32\",\"bytes\":4096,\"op\":null,\"group\":"
    "\"shard\"}]}"};

static void
put_initial(void)
{
    const hand_tensor_t first[] = {
        {"parameter/-/a", "[2,2]", 4, {0, 1, 3, 4}, NULL},
        {"parameter/-/b", "[2]", 2, {10, 11}, NULL}};
    const hand_tensor_t second[] = {{"parameter/-/a", "[2]", 2, {2, 5}, NULL},
                                    {"parameter/-/b", "[1]", 1, {12}, NULL}};
    hand_put_tensors("step-000000/rank-00000.safetensors", first, 2);
    hand_put_tensors("step-000000/rank-00001.safetensors", second, 2);
    hand_put("step-000000/rank-00000.json", pieces[0]);
    hand_put("step-000000/rank-00001.json", pieces[1]);
}

/* Step 1 has no order of its own. */
static void
put_step(void)
{
    for (int r = 0; r < 2; r++) {
        char key[10][64], name[64], shard[512];
        const char *const list[] = {"input/%d/x",
                                    "gathered_parameter/%d/b",
                                    "unit_input/%d/(root)",
                                    "unit_output/%d/layers.0",
                                    "unit_output/%d/layers.1",
                                    "unit_output/%d/(root)",
                                    "loss/%d/loss",
                                    "output_grad/%d/(root)",
                                    "unreduced_grad/%d/b",
                                    "input_grad/%d/layers.0"};
        hand_tensor_t t[12];
        for (int i = 0; i < 10; i++) {
            snprintf(key[i], sizeof key[i], list[i], r);
            t[i] =
                (hand_tensor_t){key[i], "[1]", 1, {(float)(100 * r + i)}, NULL};
        }
        t[0].dtype = "I64";
        t[1].shape = t[8].shape = "[3]";
        t[1].numel = t[8].numel = 3;
        t[10] = (hand_tensor_t){"norm/-/norm", "[1]", 1, {7}, "F64"};
        t[11] = (hand_tensor_t){
            "reduced_grad/1/b", r ? "[1]" : "[2]", r ? 1 : 2, {5, 6}, NULL};
        snprintf(name, sizeof name, "step-000001/rank-%05d.safetensors", r);
        hand_put_tensors(name, t, 12);
        snprintf(name, sizeof name, "step-000001/rank-%05d.json", r);
        snprintf(shard, sizeof shard,
                 "{\"rank\":%d,\"step\":1,\"pieces\":{\"reduced_grad/1/b\":{"
                 "\"shape\":[3],\"runs\":[[%d,%d,0,1]]}}}",
                 r, r ? 2 : 0, r ? 1 : 2);
        hand_put(name, shard);
    }
}

void
put_sound(void)
{
    hand_trace_begin();
    put_initial();
    put_step();
    hand_put("trace.json", about);
}

fsdp_trace_t *
open_sound(void)
{
    fsdp_trace_t *trace;
    fsdp_status_t status = fsdp_trace_open(hand_folder, &trace);
    ck_assert_msg(status == FSDP_OK, "%s", fsdp_error_message());
    return trace;
}
