/* Writes the text that `fsdp train` learns from when nothing else is given:
 * short stories for children, made from the grammar in stories_grammar.c.
 *
 *     stories [BYTES [SEED]]      at least BYTES bytes (300000), whole stories
 *
 * The same arguments give the same bytes on every machine. */
#include <ctype.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stories.h"

enum { MAX_RULES = 200, MAX_NAME = 32, MAX_DEPTH = 20 };

typedef struct rule {
    const char *name;           /* without = or @                             */
    const char *const *choices; /* [num_choices], borrowed from the grammar   */
    uint32_t num_choices;
    int kept;                /* an @ rule                                  */
    const char *kept_choice; /* of this story, NULL before the first use   */
} rule_t;

static rule_t rules[MAX_RULES];
static int num_rules;
static uint64_t random_state;
static unsigned long bytes_written;

static void
die(const char *what, const char *where)
{
    fprintf(stderr, "stories: %s: %s\n", what, where);
    exit(1);
}

/* Below n.  The state is a linear congruential generator, whose upper bits are
 * mixed by xor-shift and multiplication; integers only, hence portable. */
static uint32_t
random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = random_state ^ random_state >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return (uint32_t)((x >> 32) * n >> 32);
}

static void
read_grammar(void)
{
    for (const char *const *s = story_grammar; *s != NULL; s++) {
        if (**s == '=' || **s == '@') {
            if (num_rules == MAX_RULES)
                die("too many rules", *s);
            rules[num_rules++] =
                (rule_t){.name = *s + 1, .choices = s + 1, .kept = **s == '@'};
        } else {
            rules[num_rules - 1].num_choices++;
        }
    }
}

static rule_t *
find_rule(const char *name)
{
    for (int i = 0; i < num_rules; i++)
        if (strcmp(rules[i].name, name) == 0)
            return &rules[i];
    die("no such rule", name);
    return NULL;
}

static const char *
choose(rule_t *rule)
{
    if (rule->kept_choice != NULL)
        return rule->kept_choice;
    const char *choice = rule->choices[random_below(rule->num_choices)];
    if (rule->kept)
        rule->kept_choice = choice;
    return choice;
}

/* Part number `want` of the `length` bytes at text, cut at `separator`; sets
 * *length to its own length. */
static const char *
part(const char *text, size_t *length, char separator, uint32_t want)
{
    const char *end = text + *length;
    for (; want > 0; want--) {
        text = memchr(text, separator, (size_t)(end - text));
        if (text == NULL)
            die("a part is missing before", end);
        text++;
    }
    const char *stop = memchr(text, separator, (size_t)(end - text));
    *length = (size_t)((stop != NULL ? stop : end) - text);
    return text;
}

static uint32_t
field_number(const char *field)
{
    static const char *const fields[] = {"name", "he", "him", "his", "kind"};
    for (uint32_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i], field) == 0)
            return i;
    die("no such field", field);
    return 0;
}

static void expand(const char *text, size_t length, int capital, int depth);

/* The inside of {name}, {Name} or {name.field}. */
static void
expand_name(const char *text, size_t length, int capital, int depth)
{
    char name[MAX_NAME];
    if (length >= MAX_NAME)
        die("too long a name", text);
    memcpy(name, text, length);
    name[length] = '\0';
    capital |= isupper((unsigned char)name[0]);
    name[0] = (char)tolower((unsigned char)name[0]);

    char *dot = strchr(name, '.');
    uint32_t field = dot != NULL ? field_number(dot + 1) : 0;
    if (dot != NULL)
        *dot = '\0';
    const char *choice = choose(find_rule(name));
    size_t choice_length = strlen(choice);
    choice = part(choice, &choice_length, '/', field);
    expand(choice, choice_length, capital, depth + 1);
}

/* The inside of {a|b|c}. */
static void
expand_choice(const char *text, size_t length, int capital, int depth)
{
    uint32_t parts = 1;
    for (size_t i = 0; i < length; i++)
        parts += text[i] == '|';
    text = part(text, &length, '|', random_below(parts));
    expand(text, length, capital, depth + 1);
}

static void
put(char c, int capital)
{
    putchar(capital ? toupper((unsigned char)c) : c);
    bytes_written++;
}

/* Writes the text; its first letter is a capital if so asked. */
static void
expand(const char *text, size_t length, int capital, int depth)
{
    const char *end = text + length;
    if (depth > MAX_DEPTH)
        die("rules without end", text);
    for (; text < end; capital = 0) {
        if (*text != '{') {
            put(*text++, capital);
            continue;
        }
        const char *inside = text + 1;
        const char *close = memchr(inside, '}', (size_t)(end - inside));
        if (close == NULL)
            die("no }", text);
        size_t inner = (size_t)(close - inside);
        if (memchr(inside, '|', inner) != NULL)
            expand_choice(inside, inner, capital, depth);
        else
            expand_name(inside, inner, capital, depth);
        text = close + 1;
    }
}

int
main(int argc, char **argv)
{
    unsigned long size = argc > 1 ? strtoul(argv[1], NULL, 10) : 300000;
    random_state = argc > 2 ? strtoumax(argv[2], NULL, 10) : 1;

    read_grammar();
    while (bytes_written < size) {
        for (int i = 0; i < num_rules; i++)
            rules[i].kept_choice = NULL;
        expand("{story}", 7, 0, 0);
    }
    if (fflush(stdout) != 0 || ferror(stdout))
        die("cannot write", "standard output");
    return 0;
}
