// Values by id: a table with a place for each id, because the ids of a function follow each other closely. Ids that do
// not, which a program may have too, are in a map beside it. A T() counts as no value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <vector>

#include "src/program/program.h"

namespace axccl::program {

template <class T>
class IdTable {
 public:
  T& operator[](Id id) {
    if (id >= near_.size() && id < 2 * near_.size() + kNear) Grow();
    return id < near_.size() ? near_[id] : far_[id];
  }
  // T() if there is none.
  T Find(Id id) const {
    if (id < near_.size()) return near_[id];
    const auto found = far_.find(id);
    return found == far_.end() ? T() : found->second;
  }

 private:
  static constexpr size_t kNear = 1024;

  void Grow() {
    near_.resize(2 * near_.size() + kNear);
    for (auto entry = far_.begin(); entry != far_.end();) {
      if (entry->first >= near_.size()) {
        ++entry;
        continue;
      }
      near_[entry->first] = entry->second;
      entry = far_.erase(entry);
    }
  }

  std::vector<T> near_;
  std::unordered_map<Id, T> far_;
};

}  // namespace axccl::program
