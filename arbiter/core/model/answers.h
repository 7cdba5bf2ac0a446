// SPDX-License-Identifier: Apache-2.0
// A cache for a predicate on entities of the model, for example on GPUs. Use the cache if the predicate is
// expensive to compute and is needed for many sessions.
//
// The cache is valid only as long as the state does not change.
#pragma once

#include <map>
#include <utility>

namespace sharedgpu {

template <class Entity, class Question>
class Answers {
 public:
  explicit Answers(Question question) : question_(std::move(question)) {}

  bool operator()(const Entity& entity) {
    const auto [known, is_new] = known_.try_emplace(&entity);
    if (is_new) known->second = question_(entity);
    return known->second;
  }

 private:
  const Question question_;
  std::map<const Entity*, bool> known_;
};

// Example: answers_about<Gpu>([](const Gpu& gpu) { ... })
template <class Entity, class Question>
Answers<Entity, Question> answers_about(Question question) {
  return Answers<Entity, Question>(std::move(question));
}

}  // namespace sharedgpu
