// SPDX-License-Identifier: Apache-2.0
// Random streams that allocate and free memory, and a GPU that executes their work later. A model records for
// each piece of memory which stream freed it last, and at which point of the stream.
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "interposer/memory/stream_pool.h"

using namespace sharedgpu;

namespace {

constexpr std::uint64_t kUnit = Packing::kAlignment.count;
constexpr Bytes kChunkUnit{64 * kUnit};
constexpr unsigned kStreams = 3;

// The work of a stream, and how much of it the GPU has done.
struct Stream {
  StreamId id;
  std::uint64_t submitted = 0;
  std::uint64_t done = 0;
};
using StreamPtr = std::shared_ptr<Stream>;

struct Place final : Fence {
  Place(StreamPtr its, std::uint64_t at) : stream(std::move(its)), place(at) {}
  bool passed() override { return stream->done >= place; }
  StreamPtr stream;
  std::uint64_t place;
};

enum class Action { allocate, free, free_at_once, progress, replace_stream, settle, trim };

struct Step {
  Action action;
  std::uint32_t number;
};

std::ostream& operator<<(std::ostream& out, const Step& step) {
  return out << "{" << static_cast<int>(step.action) << ", " << step.number << "}";
}

rc::Gen<Step> any_step() {
  const auto action = rc::gen::weightedElement<Action>({{8, Action::allocate},
                                                        {7, Action::free},
                                                        {1, Action::free_at_once},
                                                        {4, Action::progress},
                                                        {1, Action::replace_stream},
                                                        {2, Action::settle},
                                                        {1, Action::trim}});
  return rc::gen::map(rc::gen::pair(action, rc::gen::arbitrary<std::uint32_t>()),
                      [](const std::pair<Action, std::uint32_t>& pair) {
                        return Step{pair.first, pair.second};
                      });
}

class Model {
 public:
  Model() {
    for (StreamPtr& stream : streams_) stream = fresh();
  }

  void take(const Step& step) {
    const std::uint32_t n = step.number;
    const StreamPtr& stream = streams_[n % kStreams];
    switch (step.action) {
      case Action::allocate:
        return allocate(stream, {1 + n / kStreams % (100 * kUnit)});
      case Action::free:
        return free(n / kStreams, std::make_shared<Place>(stream, ++stream->submitted));
      case Action::free_at_once:
        return free(n / kStreams, nullptr);
      case Action::progress:
        stream->done += n / kStreams % (stream->submitted - stream->done + 1);
        return;
      case Action::replace_stream:
        streams_[n % kStreams] = fresh();
        return;
      case Action::settle:
        pool_.settle();
        return;
      case Action::trim:
        return trim({n % (400 * kUnit)});
    }
  }

  void check() {
    std::uint64_t used = 0;
    for (const auto& [base, size] : blocks_) used += Packing::round_up(size).count;
    RC_ASSERT(pool_.used().count == used);
    RC_ASSERT(pool_.used() <= pool_.reserved());
    RC_ASSERT(pool_.used() <= pool_.used_high());
    RC_ASSERT(pool_.reserved() <= pool_.reserved_high());
    std::uint64_t reserved = 0;
    for (const auto& [base, size] : chunks_) reserved += size.count;
    RC_ASSERT(pool_.reserved().count == reserved);
    for (const auto& [base, size] : blocks_) {
      const auto found = pool_.find(base + size.count - 1);
      RC_ASSERT(found.has_value());
      RC_ASSERT(found->base == base);
      RC_ASSERT(found->size == size);
    }
  }

  void end() {
    while (!blocks_.empty()) free(0, nullptr);
    for (const StreamPtr& stream : every_) stream->done = stream->submitted;
    RC_ASSERT(pool_.settle());
    trim({});
    RC_ASSERT(chunks_.empty());
    RC_ASSERT(pool_.reserved() == Bytes{});
    RC_ASSERT(pool_.used() == Bytes{});
  }

 private:
  StreamPtr fresh() {
    every_.push_back(std::make_shared<Stream>(Stream{.id = {every_.size() + 1}}));
    return every_.back();
  }

  void allocate(const StreamPtr& stream, Bytes size) {
    auto place = pool_.take(size, stream->id);
    if (!place) {
      const Bytes chunk = pool_.next_chunk(size, kChunkUnit);
      RC_ASSERT(chunk >= size);
      RC_ASSERT(chunk.count % kChunkUnit.count == 0u);
      const CUdeviceptr base = next_chunk_;
      next_chunk_ += chunk.count;  // adjacent chunks, so that the test detects a wrong merge
      chunks_[base] = chunk;
      pool_.add_chunk(base, chunk, size);
      place = base;
    }
    RC_ASSERT(*place % kUnit == 0u);
    const CUdeviceptr end = *place + Packing::round_up(size).count;
    const auto chunk = std::prev(chunks_.upper_bound(*place));
    RC_ASSERT(end <= chunk->first + chunk->second.count);
    const auto after = blocks_.lower_bound(*place);
    if (after != blocks_.end()) RC_ASSERT(end <= after->first);
    if (after != blocks_.begin())
      RC_ASSERT(std::prev(after)->first + std::prev(after)->second.count <= *place);
    // Any earlier work on the block runs before the next work of this stream.
    for (CUdeviceptr unit = *place; unit < end; unit += kUnit) {
      const std::shared_ptr<Place>& freed = freed_[unit];
      if (freed != nullptr) RC_ASSERT(freed->stream == stream || freed->passed());
    }
    blocks_[*place] = size;
  }

  void free(std::uint32_t n, std::shared_ptr<Place> place) {
    if (blocks_.empty()) return;
    const auto [base, size] = *std::next(blocks_.begin(), n % blocks_.size());
    const StreamId id = place != nullptr ? place->stream->id : StreamId{};
    RC_ASSERT(pool_.give(base, id, place));
    RC_ASSERT_FALSE(pool_.give(base, id, place));
    blocks_.erase(base);
    for (CUdeviceptr unit = base; unit < base + size.count; unit += kUnit) freed_[unit] = place;
  }

  void trim(Bytes keep) {
    for (const StreamPool::Chunk& gone : pool_.release(keep)) {
      RC_ASSERT(chunks_.at(gone.base) == gone.size);
      chunks_.erase(gone.base);
      const auto block = blocks_.lower_bound(gone.base);
      if (block != blocks_.end()) RC_ASSERT(block->first >= gone.base + gone.size.count);
      for (CUdeviceptr unit = gone.base; unit < gone.base + gone.size.count; unit += kUnit)
        if (freed_[unit] != nullptr) RC_ASSERT(freed_[unit]->passed());
    }
  }

  StreamPool pool_;
  std::vector<StreamPtr> every_;
  StreamPtr streams_[kStreams];
  CUdeviceptr next_chunk_ = 1ull << 40;
  std::map<CUdeviceptr, Bytes> chunks_;
  std::map<CUdeviceptr, Bytes> blocks_;
  std::map<CUdeviceptr, std::shared_ptr<Place>> freed_;  // stream and point where each unit was freed last
};

}  // namespace

TEST_CASE("a stream gets only memory whose last use comes before the stream's next work", "[stream_pool]") {
  const bool good = rc::check([] {
    Model model;
    for (const Step& step : *rc::gen::container<std::vector<Step>>(any_step())) {
      model.take(step);
      model.check();
    }
    model.end();
  });
  CHECK(good);
}
