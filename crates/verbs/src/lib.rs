//! The verbs objects: protection domains, memory, queues, completions, events.
