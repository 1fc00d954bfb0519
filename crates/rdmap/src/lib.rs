//! RDMAP over DDP: work requests to segments, segments to placement, delivery and completions.
