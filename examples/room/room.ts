// The client of a room: what others say, and what is typed into a field.
import { connect } from "@zgame/client";
import { JoinedSchema, JoinSchema, LineSchema, SaidSchema, SaySchema } from "../web/gen/chat/chat_pb.js";

export async function enter(url: string, name: string, room: string, show: (from: string, text: string) => void) {
  const z = await connect(url, { token: name });
  z.on(LineSchema, (line) => show(line.from, line.text));
  for (const line of (await z.request(JoinSchema, { room }, JoinedSchema)).history) show(line.from, line.text);
  return (text: string) => z.request(SaySchema, { room, text }, SaidSchema);
}
