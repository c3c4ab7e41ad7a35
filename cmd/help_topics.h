/* The pages of docs/help, as CMake turned them into strings. */
#ifndef HALLEY_HELP_TOPICS_H
#define HALLEY_HELP_TOPICS_H

struct help_topic {
    const char *name, *summary, *text;
}; /* ends with a NULL name */
extern const struct help_topic help_topics[];

#endif
