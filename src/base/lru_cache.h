// Values by key, limited by their bytes in total. The cache evicts what was used least recently, but never the value
// that was used last.
//
// Not thread-safe. The caller gives the size of each value.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace axccl {

template <class Key, class Value>
class LruCache {
 public:
  explicit LruCache(size_t most_bytes) : most_bytes_(most_bytes) {}

  // Returns null when the cache does not hold the key (any more). The pointer is valid until the next call.
  Value* Find(const Key& key) {
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) return nullptr;
    order_.splice(order_.begin(), order_, it->second);
    return &it->second->value;
  }

  // Replaces the value that the key had.
  Value* Insert(const Key& key, Value value, size_t bytes) {
    Erase(key);
    // If one of the two insertions throws because memory ran out, neither may remain.
    std::list<Entry> fresh;
    fresh.push_front(Entry{key, std::move(value), bytes});
    by_key_.emplace(key, fresh.begin());
    order_.splice(order_.begin(), fresh);
    bytes_ += bytes;
    while (bytes_ > most_bytes_ && order_.size() > 1) Erase(order_.back().key);
    return &order_.front().value;
  }

  // `key` may be a reference to the key of the entry itself.
  void Erase(const Key& key) {
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) return;
    bytes_ -= it->second->bytes;
    order_.erase(it->second);
    by_key_.erase(it);
  }

  size_t size() const { return by_key_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    Key key;
    Value value;
    size_t bytes;
  };

  const size_t most_bytes_;
  size_t bytes_ = 0;
  std::list<Entry> order_;  // most recently used first
  std::map<Key, typename std::list<Entry>::iterator> by_key_;
};

}  // namespace axccl
