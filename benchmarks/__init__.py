"""What we measure, as scripts anyone can run again: `python -m benchmarks.NAME --help`. The figures
are in docs/results/.

vision_step      a training step of a ResNet and a ViT against torch's
throughput       target tokens a second in training, alone or in alternation with another toolkit's command
scoring          tokens a second of log P of texts, against transformers
decoding         seconds of beam search over a test split, the same way
startup          command to first training step with an empty and a filled compile cache, and peak memory
step_profile     where the time of a training step goes, and its share of what the processor's matmul reaches
two_checkouts    training steps, decoding and kernels of an earlier and a later checkout, in turns
sweeps           12 trials in two one-core slots against one after another, and the queue's overhead per trial
stacking         trials as one program against one after another
statistics       coverage, error rate and power of the report's intervals and tests, on simulated experiments
subsets          how often few seeds of a real sweep find what all of them find
atlas            size of the page of attention maps, and how fast it opens and answers in a browser
alignment_error  error rate of a trained attention's word alignments on gold ones
joeynmt/         the other side of the comparisons
"""
