// The queries of test/bench/streams.cpp on Apache Flink: DataStream and CEP. streams_flink.py
// compiles and starts it.
//
// usage: StreamsFlink QUERY EVENTS TYPES RATE; QUERY is filter, window, join or pattern. RATE 0:
// prints ns an event, the slope between EVENTS / 4 and EVENTS, so that the start of a job drops
// out, and outputs. RATE > 0, events a second: prints latency, median and 99 % in ms.

import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.PatternSelectFunction;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.functions.sink.legacy.SinkFunction;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.util.Collector;

public class StreamsFlink {
  static final int DISORDER = 100; // ms
  static final AtomicLong outputs = new AtomicLong();
  static final long[] latencies = new long[1 << 20];

  public static class Event {
    public long ts, made;
    public int key, type;
    public double v;
    public Event() {}
  }

  public static class Result {
    public long value, made;
    public Result() {}
    public Result(long value, long made) {
      this.value = value;
      this.made = made;
    }
  }

  static long mixed(long x) {
    x = (x ^ (x >>> 31)) * 0x9E3779B97F4A7C15L;
    x ^= x >>> 29;
    x *= 0xBF58476D1CE4E5B9L;
    return x ^ (x >>> 32);
  }

  static class Generator implements MapFunction<Long, Event> {
    final long rate, types;
    long began;
    Generator(long rate, long types) {
      this.rate = rate;
      this.types = types;
    }
    public Event map(Long number) {
      if (rate > 0) {
        if (began == 0) began = System.nanoTime();
        long due = began + (long) (number * 1e9 / rate);
        while (System.nanoTime() < due) LockSupport.parkNanos(20000);
      }
      long x = mixed(number);
      Event event = new Event();
      event.ts = number - Long.remainderUnsigned(x, DISORDER);
      event.key = (int) (number * 7919 % 1000);
      event.type = (int) ((x >>> 20) % types);
      event.v = (x >>> 40) / (double) (1 << 24);
      event.made = System.nanoTime();
      return event;
    }
  }

  static class Sink implements SinkFunction<Result> {
    public void invoke(Result result, Context context) {
      int place = (int) outputs.getAndIncrement() & (latencies.length - 1);
      latencies[place] = System.nanoTime() - result.made;
    }
  }

  static SimpleCondition<Event> is(int type) {
    return SimpleCondition.of(event -> event.type == type);
  }

  static DataStream<Result> query(String name, DataStream<Event> events) {
    if (name.equals("filter"))
      return events.filter(e -> e.v > 0.5).map(e -> new Result((long) (e.v * 2), e.made))
          .returns(Result.class);
    if (name.equals("window"))
      return events.keyBy(e -> e.key)
          .window(SlidingEventTimeWindows.of(Duration.ofSeconds(10), Duration.ofSeconds(5)))
          .aggregate(new AggregateFunction<Event, Result, Result>() {
            public Result createAccumulator() { return new Result(); }
            public Result add(Event e, Result all) {
              all.value++;
              all.made = Math.max(all.made, e.made);
              return all;
            }
            public Result getResult(Result all) { return all; }
            public Result merge(Result a, Result b) {
              return new Result(a.value + b.value, Math.max(a.made, b.made));
            }
          }).returns(Result.class);
    if (name.equals("join"))
      return events.filter(e -> e.type < 5).keyBy(e -> e.key)
          .intervalJoin(events.filter(e -> e.type >= 5).keyBy(e -> e.key))
          .between(Duration.ofSeconds(-5), Duration.ofSeconds(0))
          .process(new ProcessJoinFunction<Event, Event, Result>() {
            public void processElement(Event a, Event b, Context c, Collector<Result> out) {
              out.collect(new Result(a.key, Math.max(a.made, b.made)));
            }
          }).returns(Result.class);
    // any: each combination matches, as in a SEQUENCE without selection
    Pattern<Event, ?> pattern =
        Pattern.<Event>begin("a", AfterMatchSkipStrategy.noSkip()).where(is(0))
            .followedByAny("b").where(is(1)).notFollowedBy("d").where(is(3))
            .followedByAny("c").where(is(2)).within(Duration.ofSeconds(10));
    return CEP.pattern(events.keyBy(e -> e.key), pattern)
        .select((PatternSelectFunction<Event, Result>) match ->
            new Result(match.get("a").get(0).key, match.get("c").get(0).made))
        .returns(Result.class);
  }

  static double seconds(String name, long events, long types, long rate) throws Exception {
    outputs.set(0);
    Configuration options = new Configuration();
    options.setString("taskmanager.memory.network.max", "128m");
    options.setString("pipeline.object-reuse", "true");
    if (rate > 0) {
      options.setString("execution.buffer-timeout.interval", "1 ms");
      options.setString("pipeline.auto-watermark-interval", "10 ms");
    }
    StreamExecutionEnvironment env =
        StreamExecutionEnvironment.getExecutionEnvironment(options).setParallelism(1);
    SingleOutputStreamOperator<Event> made =
        env.fromSequence(0, events - 1).map(new Generator(rate, types)).returns(Event.class);
    DataStream<Event> timed = made.assignTimestampsAndWatermarks(
        WatermarkStrategy.<Event>forBoundedOutOfOrderness(Duration.ofMillis(DISORDER))
            .withTimestampAssigner((e, before) -> e.ts));
    query(name, timed).addSink(new Sink());
    long begin = System.nanoTime();
    env.execute(name);
    return (System.nanoTime() - begin) / 1e9;
  }

  public static void main(String[] words) throws Exception {
    String name = words[0];
    long events = Long.parseLong(words[1]), types = Long.parseLong(words[2]);
    long rate = Long.parseLong(words[3]);
    if (rate > 0) {
      seconds(name, events, types, rate);
      long[] all = Arrays.copyOf(latencies, (int) Math.min(outputs.get(), latencies.length));
      Arrays.sort(all);
      System.out.println(all[all.length / 2] / 1e6 + " " + all[all.length * 99 / 100] / 1e6);
    } else {
      seconds(name, events / 4, types, 0); // warms up
      double few = seconds(name, events / 4, types, 0), many = seconds(name, events, types, 0);
      System.out.println((many - few) * 1e9 / (events - events / 4) + " " + outputs.get());
    }
    System.exit(0);
  }
}
