// Operators of one row set a snapshot: aggregates of groups, the greatest rows, and difference.
//
//   stream.aggregate({"symbol"}, {count("trades"), mean("price")})
//   stream.top(3, "price", {"symbol"})            // the rows of the three greatest prices
//   left.subtract(right)                          // rows of left, less as many equal ones of right
//
// PerSnapshot has their state and sends their changes. Difference counts equal payloads, as SQL's
// EXCEPT ALL does. Rows of equal value are in ascending order of their payload for `top`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <troupe/actors/events/operator.hpp>
#include <troupe/actors/events/totals.hpp>

namespace troupe::events {

/// Throws Error for an unknown field, a sum of texts, or no aggregate.
std::unique_ptr<Operator> make_aggregate(std::string name, const Schema& schema,
                                         const std::vector<std::string>& group_by,
                                         std::vector<AggregateSpec> specs, KeySource keys);

/// Throws Error for an unknown field, and unless `most` is 1 or more.
std::unique_ptr<Operator> make_top(std::string name, const Schema& schema, std::int64_t most,
                                   const std::string& by, const std::vector<std::string>& group_by,
                                   KeySource keys);

std::unique_ptr<Operator> make_difference(std::string name, const Schema& schema, KeySource keys);

}  // namespace troupe::events
