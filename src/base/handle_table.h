// Handles that can be checked. A handle is (index, generation) in the form of a pointer that is never dereferenced, so
// the table recognises stale, foreign and garbage handles without touching freed memory.
//
// Thread-safe. Pin() keeps the object alive until the pin is dropped. Remove() makes the handle invalid at once and
// waits for the pins of other threads before it returns the object. Slots live as long as the process and are reused.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/base/backoff.h"
#include "src/base/sizes.h"

namespace axccl {

template <class T>
class HandleTable {
 public:
  static constexpr uint32_t kMost = 1u << 20;  // objects at a time

 private:
  struct alignas(kCacheLine) Slot {
    std::atomic<uint32_t> generation{0};
    std::atomic<uint32_t> pins{0};
    std::shared_ptr<T> object;
  };

 public:
  // `tag` (1..255) distinguishes the handles of different tables.
  constexpr explicit HandleTable(uint8_t tag) : tag_(tag) {}

  class Pin {
   public:
    Pin() = default;
    explicit Pin(std::atomic<uint32_t>* count, T* object) : count_(count), object_(object) {}
    Pin(Pin&& other) noexcept : count_(std::exchange(other.count_, nullptr)), object_(other.object_) {}
    Pin& operator=(Pin&& other) noexcept {
      Drop();
      count_ = std::exchange(other.count_, nullptr);
      object_ = other.object_;
      return *this;
    }
    ~Pin() { Drop(); }
    explicit operator bool() const { return count_ != nullptr; }
    T* operator->() const { return object_; }
    T& operator*() const { return *object_; }
    T* get() const { return count_ != nullptr ? object_ : nullptr; }
    void Drop() {
      if (count_ != nullptr) count_->fetch_sub(1, std::memory_order_release);
      count_ = nullptr;
    }

   private:
    std::atomic<uint32_t>* count_ = nullptr;
    T* object_ = nullptr;
  };

  // Returns null when the table holds kMost objects.
  void* Insert(std::shared_ptr<T> object) {
    std::lock_guard lock(mutex_);
    uint32_t index;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else {
      index = size_.load(std::memory_order_relaxed);
      if (index == kMost) return nullptr;
      if (index % kChunk == 0) {
        free_.reserve(index + kChunk);  // so that Remove needs no memory
        chunks_[index / kChunk].store(new Slot[kChunk], std::memory_order_release);
      }
      size_.store(index + 1, std::memory_order_release);
    }
    Slot& slot = At(index);
    slot.object = std::move(object);
    const uint32_t generation = slot.generation.load(std::memory_order_relaxed) + 1;  // odd: live
    slot.generation.store(generation, std::memory_order_seq_cst);
    return Encode(index, generation);
  }

  // Returns an empty pin when the handle is not live.
  Pin Get(const void* handle) { return Get(Know(handle)); }

  // A handle that has been found live, for calls that find it again: it need not be taken apart then.
  class Known {
   public:
    bool Live() const { return slot_ != nullptr && slot_->generation.load(std::memory_order_acquire) == generation_; }

   private:
    friend class HandleTable;
    Slot* slot_ = nullptr;
    uint32_t generation_ = 0;
  };
  // Not live if the handle is not.
  Known Know(const void* handle) {
    Known known;
    uint32_t index;
    if (Decode(handle, &index, &known.generation_)) known.slot_ = &At(index);
    return known;
  }
  static Pin Get(const Known& known) {
    if (known.slot_ == nullptr) return Pin();
    known.slot_->pins.fetch_add(1, std::memory_order_seq_cst);
    if (known.slot_->generation.load(std::memory_order_seq_cst) == known.generation_)
      return Pin(&known.slot_->pins, known.slot_->object.get());
    known.slot_->pins.fetch_sub(1, std::memory_order_release);
    return Pin();
  }

  // Returns the object without a pin, or null when the handle is not live. The caller must rule out that another thread
  // removes it meanwhile.
  T* Peek(const void* handle) {
    uint32_t index, generation;
    if (!Decode(handle, &index, &generation)) return nullptr;
    Slot& slot = At(index);
    return slot.generation.load(std::memory_order_acquire) == generation ? slot.object.get() : nullptr;
  }

  // Makes the handle invalid and returns the object, or null when it was not live. `own_pins`: pins that the caller
  // holds.
  std::shared_ptr<T> Remove(const void* handle, uint32_t own_pins = 0) {
    uint32_t index, generation;
    if (!Decode(handle, &index, &generation)) return nullptr;
    Slot& slot = At(index);
    if (!slot.generation.compare_exchange_strong(generation, generation + 1, std::memory_order_seq_cst)) return nullptr;
    for (Backoff backoff; slot.pins.load(std::memory_order_acquire) > own_pins;) backoff.Wait();
    std::shared_ptr<T> object = std::move(slot.object);
    std::lock_guard lock(mutex_);
    free_.push_back(index);
    return object;
  }

 private:
  static constexpr uint32_t kChunk = 256;

  Slot& At(uint32_t index) const { return chunks_[index / kChunk].load(std::memory_order_acquire)[index % kChunk]; }

  // tag in bits 56..63 (never a canonical user address), generation in 24..55, index in 4..23, low bits zero.
  void* Encode(uint32_t index, uint32_t generation) const {
    return reinterpret_cast<void*>(uint64_t{tag_} << 56 | uint64_t{generation} << 24 | uint64_t{index} << 4);
  }
  bool Decode(const void* handle, uint32_t* index, uint32_t* generation) const {
    const uint64_t bits = reinterpret_cast<uint64_t>(handle);
    if (bits >> 56 != tag_ || (bits & 15) != 0) return false;
    *index = (bits >> 4) & (kMost - 1);
    *generation = static_cast<uint32_t>(bits >> 24);
    return (*generation & 1) != 0 && *index < size_.load(std::memory_order_acquire);
  }

  const uint8_t tag_;
  std::mutex mutex_;
  std::vector<uint32_t> free_;
  std::atomic<uint32_t> size_{0};
  std::atomic<Slot*> chunks_[kMost / kChunk] = {};
};

}  // namespace axccl
