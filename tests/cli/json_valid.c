/* SPDX-License-Identifier: Apache-2.0 */
/* json_valid.c - exits 0 if stdin is one JSON value, as RFC 8259 has it, and nothing else. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static char text[1 << 22];
static const char *at = text;

static bool value(int depth);

static void space(void) { at += strspn(at, " \t\r\n"); }

static bool is(char c)
{
    space();
    if (*at != c) return false;
    at++;
    return true;
}

static bool string(void)
{
    if (!is('"')) return false;
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20) return false;
        if (*at != '\\') continue;
        at++;
        if (*at == 'u') {
            for (int i = 0; i < 4; i++)
                if (!isxdigit((unsigned char)*++at)) return false;
        } else if (!*at || !strchr("\"\\/bfnrt", *at)) {
            return false;
        }
    }
    at++;
    return true;
}

static bool digits(void)
{
    size_t count = strspn(at, "0123456789");
    at += count;
    return count > 0;
}

static bool number(void)
{
    if (*at == '-') at++;
    if (*at == '0' && isdigit((unsigned char)at[1])) return false;
    if (!digits()) return false;
    if (*at == '.' && (at++, !digits())) return false;
    if (*at != 'e' && *at != 'E') return true;
    at++;
    if (*at == '+' || *at == '-') at++;
    return digits();
}

static bool member(int depth) { return string() && is(':') && value(depth); }

static bool members(int depth, char close, bool (*one)(int depth))
{
    if (is(close)) return true;
    do {
        if (!one(depth)) return false;
    } while (is(','));
    return is(close);
}

static bool word(const char *name)
{
    if (strncmp(at, name, strlen(name))) return false;
    at += strlen(name);
    return true;
}

static bool value(int depth)
{
    space();
    if (depth > 100) return false;
    if (*at == '"') return string();
    if (is('{')) return members(depth + 1, '}', member);
    if (is('[')) return members(depth + 1, ']', value);
    return word("true") || word("false") || word("null") || number();
}

int main(void)
{
    size_t length = fread(text, 1, sizeof text - 1, stdin);
    if (length == 0 || strlen(text) != length || !value(0)) return 1;
    space();
    return *at != 0;
}
