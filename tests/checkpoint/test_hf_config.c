/* Hugging Face's config.json: fields, defaults of transformers, what is refused.
 * The numbers that are expected are those of the published models' files. */
/* Ranks: 1 */
#include <stdio.h>
#include <string.h>

#include "checkpoint/hf_config.h"
#include "fsdp/memory.h"
#include "mck.h"

static fsdp_status_t
read_text(const char *text, fsdp_hf_config_t *config)
{
    fsdp_json_t *document;
    fsdp_status_t status =
        fsdp_json_parse("config.json", text, strlen(text), &document);
    ck_assert_msg(status == FSDP_OK, "%s", fsdp_error_message());
    status = fsdp_hf_config_read("config.json", document, config);
    fsdp_json_destroy(&document);
    return status;
}

START_TEST(an_empty_gpt2_is_gpt2_small)
{
    fsdp_hf_config_t c;
    ck_assert(read_text("{\"model_type\": \"gpt2\", \"n_ctx\": 5}", &c) ==
              FSDP_OK);
    ck_assert(c.model == FSDP_HF_GPT2);
    ck_assert_uint_eq(c.gpt2.vocab_size, 50257);
    ck_assert_uint_eq(c.gpt2.n_positions, 1024);
    ck_assert_uint_eq(c.gpt2.n_embd, 768);
    ck_assert_uint_eq(c.gpt2.n_layer, 12);
    ck_assert_uint_eq(c.gpt2.n_head, 12);
    ck_assert(c.gpt2.attn_pdrop == 0.1 && c.gpt2.resid_pdrop == 0.1 &&
              c.gpt2.embd_pdrop == 0.1);
    ck_assert(c.gpt2.layer_norm_epsilon == 1e-5);
    ck_assert(c.gpt2.tie_word_embeddings);
    ck_assert(c.stored == FSDP_DTYPE_NONE);
}
END_TEST

START_TEST(a_llama_of_transformers_4_and_5)
{
    const char *texts[] = {
        /* TinyLlama-1.1B's numbers, as transformers 4 wrote them */
        "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 2048,"
        " \"intermediate_size\": 5632, \"num_attention_heads\": 32,"
        " \"num_hidden_layers\": 22, \"num_key_value_heads\": 4,"
        " \"rms_norm_eps\": 1e-05, \"rope_scaling\": null, \"rope_theta\": 1e6,"
        " \"torch_dtype\": \"bfloat16\"}",
        "{\"model_type\": \"llama\", \"hidden_size\": 2048,"
        " \"intermediate_size\": 5632, \"num_attention_heads\": 32,"
        " \"num_hidden_layers\": 22, \"num_key_value_heads\": 4,"
        " \"rms_norm_eps\": 1e-05, \"rope_parameters\": {\"rope_type\":"
        " \"default\", \"rope_theta\": 1000000}, \"dtype\": \"bfloat16\"}"};
    for (int i = 0; i < 2; i++) {
        fsdp_hf_config_t c;
        ck_assert_msg(read_text(texts[i], &c) == FSDP_OK, "%s",
                      fsdp_error_message());
        ck_assert(c.model == FSDP_HF_LLAMA);
        ck_assert_uint_eq(c.llama.num_key_value_heads, 4);
        ck_assert_uint_eq(c.llama.head_dim, 64);
        ck_assert_uint_eq(c.llama.vocab_size, 32000);
        ck_assert_uint_eq(c.llama.max_position_embeddings, 2048);
        ck_assert(c.llama.rope_theta == 1e6 && c.llama.rms_norm_eps == 1e-5);
        ck_assert(!c.llama.tie_word_embeddings && !c.llama.attention_bias);
        ck_assert(c.stored == FSDP_BF16);
    }
}
END_TEST

/* What is written reads back as the same. */
START_TEST(what_is_written_reads_back)
{
    const char *texts[] = {
        "{\"model_type\": \"gpt2\", \"vocab_size\": 29, \"n_positions\": 8,"
        " \"n_embd\": 12, \"n_layer\": 2, \"n_head\": 3, \"attn_pdrop\": 0.25,"
        " \"layer_norm_epsilon\": 3e-7, \"tie_word_embeddings\": false}",
        "{\"model_type\": \"llama\", \"vocab_size\": 31, \"hidden_size\": 24,"
        " \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
        " \"head_dim\": 10, \"num_hidden_layers\": 3, \"mlp_bias\": true,"
        " \"intermediate_size\": 40, \"tie_word_embeddings\": true,"
        " \"rope_theta\": 123.5, \"dtype\": \"float32\"}"};
    for (int i = 0; i < 2; i++) {
        fsdp_hf_config_t c, again;
        ck_assert_msg(read_text(texts[i], &c) == FSDP_OK, "%s",
                      fsdp_error_message());
        fsdp_json_writer_t *w = fsdp_json_writer_create();
        fsdp_hf_config_write(&c, w);
        ck_assert_msg(read_text(fsdp_json_writer_text(w), &again) == FSDP_OK,
                      "%s", fsdp_error_message());
        fsdp_json_writer_destroy(&w);
        ck_assert_mem_eq(&c, &again, sizeof c);
    }
}
END_TEST

START_TEST(what_is_not_computed_here_is_refused)
{
    const char *const bad[][2] = {
        {"{\"model_type\": \"bert\"}", "\"model_type\" is \"bert\""},
        {"{}", "\"model_type\" is missing"},
        {"[1]", "is a JSON object, this is an array"},
        {"{\"model_type\": 3}", "\"model_type\" is missing"},
        {"{\"model_type\": \"gpt2\", \"n_embd\": 1.5}", "\"n_embd\" is"},
        {"{\"model_type\": \"gpt2\", \"n_embd\": -1}", "1 to 2^30"},
        {"{\"model_type\": \"gpt2\", \"n_embd\": 9223372036854775807}",
         "1 to 2^30"},
        {"{\"model_type\": \"gpt2\", \"n_embd\": 10}", "\"n_head\" is no"},
        {"{\"model_type\": \"gpt2\", \"n_inner\": 5}", "\"n_inner\" is"},
        {"{\"model_type\": \"gpt2\", \"attn_pdrop\": 1}", "below 1"},
        {"{\"model_type\": \"gpt2\", \"attn_pdrop\": \"x\"}", "a number"},
        {"{\"model_type\": \"gpt2\", \"layer_norm_epsilon\": 0}", "above 0"},
        {"{\"model_type\": \"gpt2\", \"activation_function\": \"relu\"}",
         "\"relu\"; it should be \"gelu_new\""},
        {"{\"model_type\": \"gpt2\", \"scale_attn_weights\": false}",
         "\"scale_attn_weights\""},
        {"{\"model_type\": \"llama\", \"hidden_act\": \"gelu\"}", "\"silu\""},
        {"{\"model_type\": \"llama\", \"num_key_value_heads\": 5}", "heads"},
        {"{\"model_type\": \"llama\", \"head_dim\": 7}", "odd"},
        {"{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": "
         "\"linear\"}}",
         "\"linear\""},
        {"{\"model_type\": \"llama\", \"rope_scaling\": 3}", "an object"},
        {"{\"model_type\": \"llama\", \"rope_parameters\":"
         " {\"rope_type\": \"llama3\"}}",
         "\"llama3\""},
        {"{\"model_type\": \"llama\", \"tie_word_embeddings\": 1}",
         "true or false"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fsdp_hf_config_t c;
        ck_assert_msg(read_text(bad[i][0], &c) == FSDP_ERR_INPUT, "%s: read",
                      bad[i][0]);
        ck_assert_msg(strstr(fsdp_error_message(), bad[i][1]) != NULL,
                      "%s: \"%s\", not \"%s\"", bad[i][0], fsdp_error_message(),
                      bad[i][1]);
        ck_assert(strncmp(fsdp_error_message(), "config.json: ", 13) == 0);
    }
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("hf_config");
    TCase *tcase = tcase_create("hf_config");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, an_empty_gpt2_is_gpt2_small);
    tcase_add_test(tcase, a_llama_of_transformers_4_and_5);
    tcase_add_test(tcase, what_is_written_reads_back);
    tcase_add_test(tcase, what_is_not_computed_here_is_refused);
    return mck_run(argc, argv, suite);
}
