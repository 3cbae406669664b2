/** \file stories.h  The grammar of the stories of the default run.
 *
 *  One array of strings, ended by NULL.  "=name" begins a rule and "@name" one
 *  whose choice is kept until the end of the story; the strings that follow
 *  are its alternatives.  In an alternative
 *      {name}      is one alternative of the rule `name`, expanded in turn
 *      {Name}      the same, beginning with a capital
 *      {name.his}  a field of it: fields stand between slashes, in the order
 *                  name/he/him/his/kind
 *      {a|b|c}     is one of a, b and c
 *  A story is one expansion of "story".
 */
#ifndef STORIES_H
#define STORIES_H

extern const char *const story_grammar[];

#endif
