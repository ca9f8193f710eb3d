// CEDR's query language: patterns as text.
//
//   EVENT MissedRestart
//   WHEN UNLESS(SEQUENCE(INSTALL x, SHUTDOWN AS y, 12 hours), RESTART AS z, 5 minutes)
//   WHERE CorrelationKey(Machine_Id, EQUAL) AND {x.Version > 3}
//   OUTPUT x.Machine_Id AS machine, root
//   #[0, 1 week)
//
//   query     = statement {";" statement} [";"]
//   statement = EVENT name WHEN part [WHERE condition] [OUTPUT fields] ["@" slice] ["#" slice]
//   part      = pattern {FIRST | LAST | EACH | CONSUME | REUSE}
//   pattern   = SEQUENCE(parts, time) | ALL(parts, time) | ANY(parts [, time])
//             | ATLEAST(n, parts, time) | UNLESS(part, part [, n], time) | NOT(part, part)
//             | CANCEL-WHEN(part, part) | ATMOST(n, names, time [BY fields]) [AS] name
//             | name [[AS] variable]
//   fields    = value [AS name] {"," value [AS name]}
//   time      = number [unit] {number unit};   slice = "[" time "," time ")"
//
// A condition has AND, OR, NOT, comparisons, + - * / %, `variable.field`, brackets and braces;
// outputs also root, contributors and occurrence. CorrelationKey(field, EQUAL | UNIQUE) is one part
// of the outermost AND. `@` keeps rows by their field `occurrence`, `#` cuts lifetimes. Words are
// in any case. A statement may name events of those above it. pattern.hpp has the meaning.
#pragma once

#include <string>
#include <vector>

#include <troupe/actors/events/query.hpp>

namespace troupe::events {

/// Returns the query of a text, with a source for each type that it names and an output for each
/// statement. `second`: units of time in a second. Throws Error (invalid_argument) with line,
/// column, what was found, and what was expected.
Query parse_query(const std::string& text, const std::vector<EventType>& types, Time second = 1);

}  // namespace troupe::events
